"""Parameters of training that follow from the engine's precision, where the params file leaves them open.

An engine that computes in bf16 samples from another distribution than the trainer's: its log-probabilities are off by
hundredths, and by far more on tokens that are improbable. Importance ratios against them are wrong before the first
update. Behind such an engine the ratio starts from the trainer's own log-probabilities (`old: trainer`), the sampler's
are corrected for token by token (`correction: token`, truncated importance sampling, Yao et al. 2025), and the second
bound of the clip is on (`dual_clip: 3`, Ye et al. 2020). An engine in fp32 needs none of this. What the params file
says is kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from rla.config.training import TrainConfig

if TYPE_CHECKING:
    from rla.config.sections import Config

DUAL_CLIP = 3.0

Section = TypeVar("Section", bound=TrainConfig)


def protected(train: Section, *, half: bool) -> Section:
    """`train` with every `auto` decided. `half`: whether the engine that samples computes in bf16."""
    masked = bool(train.mask_low or train.mask_high)
    old, correction, dual_clip = train.old, train.correction, train.dual_clip
    if old == "auto":
        old = "trainer" if half or masked or correction in ("token", "reply") else "sampler"
    if correction == "auto":
        correction = "token" if half and old == "trainer" else "none"
    if dual_clip is None:
        bounds = train.loss != "cispo" and 1 + train.clip_high < DUAL_CLIP
        dual_clip = DUAL_CLIP if half and bounds else 0.0
    return replace(train, old=old, correction=correction, dual_clip=dual_clip)


def with_protection(config: Config) -> Config:
    """The config with both training sections decided."""
    half = config.generator.dtype == "bfloat16"
    return replace(
        config,
        train_policy=protected(config.train_policy, half=half),
        train_rm=protected(config.train_rm, half=half),
    )
