"""LoRA checkpoints: an adapter, and the base that it lies over, which is stored once for the whole run.

    adapter/           the adapter as `peft` writes it
    model/             configuration and tokenizer, no weights, and base.json:
        base           the model folder with the base's weights: the start of the run; relative within the run's folder
        files          bytes and SHA-256 of those weights (`rla.models.verifying` compares them)
        adapter        the adapter's digest, so that equal folders are equal models

Whoever loads `model/` gets base and adapter as one, W + alpha / rank B A (`rla.models.load`, which also writes both as
one folder for readers that want files). An engine may keep the base and take adapters by request (`generator.lora:
adapter`). Any other folder is its own base and has no adapter.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.errors import UserError
from rla.models.checkpoint import ADAPTER, BASE
from rla.store.digests import KEY, Records, read_records
from rla.store.layout import making_call
from rla.store.record import optional_json, read_regular

if TYPE_CHECKING:
    from transformers import PreTrainedModel

OVER = "holds an adapter over it: bring it back, and move or copy a run as a whole"
SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# What of an adapter's settings decides what it computes.
DECIDING = ("r", "lora_alpha", "target_modules", "rank_pattern", "alpha_pattern", "use_rslora")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A folder as `peft` writes it. Equal digests compute the same over equal bases; its product counts `scale`."""

    folder: Path
    digest: str
    rank: int
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterBase:
    """The model folder that an adapter lies over, and what was recorded of its weights, by file name."""

    folder: Path
    files: Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a model is made of: the folder (or hub id) of its base, the files with those weights, and the adapter over
    it if there is one.
    """

    base: Path | str
    weights: tuple[Path, ...]
    adapter: Adapter | None = None


def base_of(model: Path | str) -> AdapterBase | None:
    """The base of a LoRA checkpoint's `model/` folder; None for any other model. Raises UserError."""
    file = Path(model) / BASE
    content = optional_json(file)
    if content is None:
        return None
    files = read_records(file)
    if not isinstance(content.get("base"), str) or not files:
        raise UserError(f"{file}: does not say which base the adapter lies over; run {making_call(file)} again")
    return AdapterBase(folder=Path(os.path.normpath(file.parent.absolute() / content["base"])), files=files)


def write_base(model: Path, base: AdapterBase, *, place: Path, adapter: Path) -> None:
    """`base.json` of the folder `model`, which will have the name `place`. Within a run the path is relative, so that
    the run can be moved or copied.
    """
    folder, place = base.folder.resolve(), place.resolve()
    named = os.path.relpath(folder, place) if folder.is_relative_to(place.parent.parent.parent) else str(folder)
    content = {"base": named, "adapter": adapter_in(adapter).digest, KEY: dict(base.files)}
    (model / BASE).write_text(json.dumps(content, indent=2) + "\n")


def parts_of(model: Path | str) -> Parts:
    """The parts of a checkpoint's `model/` folder, or of a plain folder or hub id. Reads no weights of the base.

    Raises UserError if an adapter's files or its base are missing.
    """
    folder = Path(model)
    base = base_of(folder)
    if base is None:
        return Parts(base=model, weights=tuple(sorted(folder.glob("*.safetensors"))) if folder.is_dir() else ())
    for name in base.files:
        if not (base.folder / name).is_file():
            raise UserError(f"{base.folder / name}: missing; {folder.parent} {OVER}")
    adapter = adapter_in(folder.parent / ADAPTER)
    return Parts(base=base.folder, weights=tuple(base.folder / name for name in sorted(base.files)), adapter=adapter)


def adapter_in(folder: Path) -> Adapter:
    """The adapter of a folder. Raises UserError where it cannot be read."""
    try:
        settings = json.loads(read_regular(folder / SETTINGS))
        rank, scale = int(settings["r"]), float(settings["lora_alpha"]) / int(settings["r"])
        digest = hashlib.sha256(_decisive(settings))
        with (folder / WEIGHTS).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError) as error:
        raise UserError(
            f"{folder}: not a readable adapter ({type(error).__name__}: {error}); run {making_call(folder)} again"
        ) from error
    return Adapter(folder=folder, digest=digest.hexdigest(), rank=rank, scale=scale)


def _decisive(settings: dict[str, Any]) -> bytes:
    kept = {key: settings.get(key) for key in DECIDING}
    if isinstance(kept["target_modules"], list):
        kept["target_modules"] = sorted(kept["target_modules"])
    return json.dumps(kept, sort_keys=True).encode()


def add_adapter(model: PreTrainedModel, adapter: Adapter) -> None:
    """Add an adapter to the weights of its base, layer by layer: each sum is made in fp32 and rounded once."""
    import torch
    from safetensors import safe_open

    with torch.no_grad(), safe_open(adapter.folder / WEIGHTS, framework="pt") as content:
        for name in sorted(name for name in content.keys() if ".lora_A." in name):  # noqa: SIM118 (no mapping)
            weight = model.get_parameter(name.removeprefix("base_model.model.").replace(".lora_A.", "."))
            first, second = (content.get_tensor(one) for one in (name, name.replace(".lora_A.", ".lora_B.")))
            weight.copy_(weight.float() + (second @ first).mul_(adapter.scale).to(weight.device))
