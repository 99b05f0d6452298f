"""Which base and which adapter a model folder stands for: an engine keeps the base and takes adapters by request.

A checkpoint of LoRA training holds the adapter, the run's first weights, which are its base, and both merged
(`rla.models.checkpoint`). The base that an adapter's own `adapter_config.json` names is not used: it is whatever
folder the training stage had read. Any other folder is its own base and has no adapter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rla.errors import UserError
from rla.models.checkpoint import MANIFEST, REFERENCE, WEIGHT_SUFFIXES, open_checkpoint
from rla.store.layout import making_call
from rla.store.regular import read_regular

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# What of an adapter's settings decides what it computes.
DECIDING = ("r", "lora_alpha", "target_modules", "rank_pattern", "alpha_pattern", "use_rslora")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A folder as `peft` writes it. Equal digests compute the same over equal bases."""

    folder: Path
    digest: str
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What `model` is made of: the files of its base, `weights`, and the adapter over it where there is one."""

    model: Path | str
    weights: tuple[Path, ...]
    adapter: Adapter | None = None


def parts_of(model: Path | str) -> Parts:
    """The parts of a checkpoint's `model/` folder, or of a plain folder or hub id. Reads no weights of the base.

    Raises UserError where an adapter's files or its base are missing.
    """
    folder = Path(model)
    if not folder.is_dir():
        return Parts(model=model, weights=())
    if folder.name == "model" and (folder.parent / MANIFEST).is_file():
        checkpoint = open_checkpoint(folder.parent)
        if checkpoint.adapter is not None:
            if checkpoint.reference is None:
                raise UserError(
                    f"{folder.parent}: has an adapter, and not the weights that it was trained on "
                    f"(state/{REFERENCE}.safetensors); bring them, or set generator.lora: merged"
                )
            weights = tuple(sorted(checkpoint.reference.glob(f"{REFERENCE}*.safetensors")))
            return Parts(model=folder, weights=weights, adapter=adapter_in(checkpoint.adapter))
    return Parts(model=folder, weights=tuple(sorted(folder.glob("*.safetensors"))))


def adapter_in(folder: Path) -> Adapter:
    """The adapter of a folder. Raises UserError where it cannot be read."""
    try:
        settings = json.loads(read_regular(folder / SETTINGS))
        rank = int(settings["r"])
        digest = hashlib.sha256(_decisive(settings))
        with (folder / WEIGHTS).open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(
            f"{folder}: not a readable adapter ({type(error).__name__}: {error}); set generator.lora: merged, or run "
            f"{making_call(folder)} again"
        ) from error
    return Adapter(folder=folder, digest=digest.hexdigest(), rank=rank)


def _decisive(settings: dict[str, Any]) -> bytes:
    kept = {key: settings.get(key) for key in DECIDING}
    if isinstance(kept["target_modules"], list):
        kept["target_modules"] = sorted(kept["target_modules"])
    return json.dumps(kept, sort_keys=True).encode()


@contextmanager
def base_folder(parts: Parts) -> Iterator[Path | str]:
    """The base as an ordinary model folder, of links, for as long as an engine takes to load it."""
    if parts.adapter is None:
        yield parts.model
        return
    with TemporaryDirectory(prefix="rla-base-") as name:
        folder = Path(name)
        for file in Path(parts.model).iterdir():
            if file.is_file() and not file.name.endswith(WEIGHT_SUFFIXES):
                (folder / file.name).symlink_to(file.resolve())
        for file in parts.weights:
            (folder / file.name.replace(REFERENCE, "model", 1)).symlink_to(file.resolve())
        yield folder
