"""Parameters of what models see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rla.config.bounds import ranged


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionConfig:
    """The vision tower of a small new model; `kind: none`: it reads texts alone."""

    kind: Literal["none", "qwen2.5-vl", "qwen3-vl"] = "none"  # of transformers' architectures
    hidden_size: int = ranged(64, least=8, most=65536)  # of the tower
    layers: int = ranged(4, least=1, most=1024)  # blocks of the tower
    heads: int = ranged(4, least=1, most=1024)  # attention heads of the tower
    patch_size: int = ranged(14, least=2, most=256)  # pixels; a token stands for 2 x 2 patches
    most_tokens: int = ranged(256, least=1, most=1 << 16)  # of a picture: larger ones are scaled down
