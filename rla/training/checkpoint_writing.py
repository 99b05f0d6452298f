"""Writing checkpoint folders (`rla.models.checkpoint` says what lies in one): whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.errors import UserError
from rla.models.checkpoint import (
    ADAPTER,
    FORMAT,
    HISTORY,
    MANIFEST,
    METRICS,
    REFERENCE,
    WEIGHT_SUFFIXES,
    Checkpoint,
    model_digest,
)
from rla.store.atomic import write_json
from rla.store.pruned import PARTS, PRUNED
from rla.store.removing import remove_made

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def write_checkpoint(
    out: Path,
    *,
    previous: Checkpoint,
    model: PreTrainedModel,
    dtype: str,
    metrics: Mapping[str, Any],
    state: Path | None = None,
    updates: int = 0,
    adapter: Path | None = None,
    history: Sequence[Mapping[str, Any]] = (),
    record: Mapping[str, Any] | None = None,
) -> None:
    """Write `out` atomically from a model and folders with state and adapter, which move into it.

    Without `state` (a warm start) the model becomes the reference of the run. Converts `model` to `dtype`, so it cannot
    train further. Tokenizer files come from `previous`.
    """
    import torch

    from rla.training.state import WEIGHTS, save_weights

    partial = _fresh(out)
    kind = getattr(torch, dtype)
    if state is None:
        save_weights(model, partial / "state", WEIGHTS)
        save_weights(model, partial / "state", REFERENCE, dtype=kind)
    else:
        state.rename(partial / "state")
        _keep_reference(previous, partial / "state", dtype=dtype)
    if adapter is not None:
        adapter.rename(partial / ADAPTER)
    _export_companions(previous.model, partial / "model")
    model.to(kind).save_pretrained(partial / "model")
    (partial / HISTORY).write_text("".join(json.dumps(one, allow_nan=False) + "\n" for one in history))
    _finish(partial, out, updates=updates, metrics=metrics, record=record)


def carry_over(
    previous: Checkpoint,
    out: Path,
    *,
    metrics: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
) -> None:
    """`out` becomes a checkpoint with the very same weights and state, as hard links where possible."""
    partial = _fresh(out)
    if isinstance(previous.model, str) and not Path(previous.model).is_dir():
        from rla.models.load import load_model

        _export_companions(previous.model, partial / "model")
        load_model(previous.model).save_pretrained(partial / "model")
    else:
        shutil.copytree(previous.model, partial / "model", copy_function=_link_or_copy)
    if previous.state is not None:
        shutil.copytree(previous.state, partial / "state", copy_function=_link_or_copy)
    if previous.adapter is not None:
        shutil.copytree(previous.adapter, partial / ADAPTER, copy_function=_link_or_copy)
    (partial / HISTORY).touch()
    _finish(partial, out, updates=previous.updates, metrics=metrics or {}, record=record)


def publish(partial: Path, place: Path) -> None:
    """Flush every file of `partial` to the disk, then rename it to `place`."""
    for path in [*partial.rglob("*"), partial]:
        _flush(path)
    partial.rename(place)
    _flush(place.parent)


def remove_checkpoint(folder: Path) -> None:
    """Its record goes last. Raises UserError, with nothing removed, where the folder holds anything else."""
    files = (MANIFEST, METRICS, HISTORY, PRUNED)
    remove_made(folder, lambda path: str(path) in files or path.parts[0] in PARTS, last=(MANIFEST,))


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_existing(out: Path) -> None:
    """Raises UserError unless `out` is free (an empty folder is)."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists already: remove it or name another folder")


def _fresh(out: Path) -> Path:
    refuse_existing(out)
    partial = out.with_name(f"{out.name}.tmp")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def _finish(
    partial: Path, out: Path, *, updates: int, metrics: Mapping[str, Any], record: Mapping[str, Any] | None
) -> None:
    content = {
        "format": FORMAT,
        "updates": updates,
        "digest": model_digest(partial / "model"),
        **(record or {}),
    }
    (partial / MANIFEST).write_text(json.dumps(content, indent=2) + "\n")
    write_json(partial / METRICS, dict(metrics))
    publish(partial, out)


def _keep_reference(previous: Checkpoint, folder: Path, *, dtype: str) -> None:
    if previous.reference is not None:
        for file in previous.reference.glob(f"{REFERENCE}*.safetensors"):
            _link_or_copy(str(file), str(folder / file.name))
        return
    import torch

    from rla.models.load import load_model
    from rla.training.state import save_weights

    save_weights(load_model(previous.model), folder, REFERENCE, dtype=getattr(torch, dtype))


def _export_companions(source: Path | str, folder: Path) -> None:
    """Tokenizer and templates, byte for byte where there is a folder to copy from."""
    folder.mkdir(parents=True)
    if isinstance(source, Path) or Path(source).is_dir():
        for file in Path(source).iterdir():
            if file.is_file() and not file.name.endswith(WEIGHT_SUFFIXES):
                shutil.copy(file, folder / file.name)
        return
    from rla.models.load import load_tokenizer

    load_tokenizer(source).save_pretrained(folder)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
