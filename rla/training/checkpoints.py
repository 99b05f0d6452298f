"""Checkpoint folders: finding one that is finished, opening one to train on, and writing the next.

`rla.models.checkpoint` lists the files of a folder, and readers of `model/` open it with `open_checkpoint`. To train on
it, its train state must be complete as well, or training would quietly start over from the exported weights, or measure
KL to them:

    trained            weights, moments, rng, state.json, and the reference (with an adapter, the base is the reference)
    start of a run     no state, like a plain model folder: a warm start, or a model that was carried over

A checkpoint is written whole or not at all. One that is replaced stays, with its own record, until the new one is
complete (`rla.store.removing`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla import __version__
from rla.errors import UserError
from rla.models.checkpoint import (
    ADAPTER,
    BASE,
    HISTORY,
    MANIFEST,
    METRICS,
    REFERENCE,
    VERSION,
    Checkpoint,
    base_of,
    checkpoint_around,
    checkpoint_records,
    has_weights,
    model_records,
    open_checkpoint,
    verify_model,
    write_base,
)
from rla.models.load import base_under
from rla.store.atomic import write_json
from rla.store.digests import FILES, Records, below, joint_digest, read_records, record_files, write_records
from rla.store.record import PARAMETERS, read_json, sealed, unlike_text
from rla.store.removing import MODEL, PARTS, PRUNED, STATE, building, refuse_pruned, refuse_unlike, settle, take_place

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rla.training.shared import Ranks

COUNTS = "state.json"
FILE_BYTES = 4 << 30  # of a file of tensors, at most: several are digested in parallel, one large file is not


def finished_checkpoint(
    out: Path, marker: dict[str, Any], *, overwrite: bool, folders: Mapping[str, str] | None = None
) -> bool:
    """Whether `out` is a complete checkpoint of the origin in `marker`.

    With `overwrite` one of another origin may be replaced, and stays until the new one is complete. Raises UserError
    for one of another origin otherwise, for a folder without a record, and for one with foreign files.
    """
    settle(out, checkpoint_file)  # a killed call may have begun to replace it
    manifest = out / MANIFEST
    if not manifest.exists():
        refuse_existing(out)
        return False
    try:
        content = read_json(manifest)
    except UserError:
        damaged = overwrite and all(f'"{key}"'.encode() in manifest.read_bytes() for key in ("updates", "digest"))
        if not damaged:  # not ours at all
            raise
        content = {}
    if content and content.get("origin") == marker["origin"]:
        shutil.rmtree(out.with_name(f"{out.name}.partial"), ignore_errors=True)  # of a call killed at its very end
        return True
    if overwrite:
        refuse_existing(out, replace=True)
        return False
    found, wanted = (
        (one["origin"] if isinstance(one.get("origin"), dict) else {}) | {PARAMETERS: one.get(PARAMETERS)}
        for one in (content, marker)
    )
    unlike = unlike_text(found, wanted, folders=folders)
    raise UserError(f"{out}: a checkpoint {unlike}; rerun with --overwrite or choose another folder")


def open_to_train(source: Path | str) -> Checkpoint:
    """Raises UserError as `open_checkpoint` does, and for a missing file of the train state."""
    checkpoint = open_checkpoint(source)
    refuse_pruned(Path(source), STATE)
    if checkpoint.digest is None or not checkpoint.updates:
        return checkpoint
    state = Path(checkpoint.model).parent / STATE
    stems = ("weights", "moments", "rng", *(() if checkpoint.adapter else (REFERENCE,)))
    wanted = {state / f"{stem}.safetensors": (f"{stem}.safetensors", f"{stem}-00000.safetensors") for stem in stems}
    for file, names in {**wanted, state / COUNTS: (COUNTS,)}.items():
        if not any((state / name).is_file() for name in names):
            raise UserError(
                f"{file}: missing, so training cannot go on from this checkpoint; restore the file or take another "
                f"checkpoint (to start over from the weights alone, name {state.with_name(MODEL)})"
            )
    return checkpoint


def record_together(folder: Path, ranks: Ranks) -> dict[str, dict[str, Any]]:
    """The records of a folder that rank 0 has written; each rank digests its share. Collective."""
    ranks.barrier()
    own: dict[str, dict[str, Any]] = {}
    ranks.check(lambda: own.update(record_files(folder, share=(ranks.rank, ranks.world))))
    return dict(sorted(item for records in ranks.gather(own) for item in records.items()))


def write_checkpoint(
    out: Path,
    *,
    previous: Checkpoint,
    model: PreTrainedModel | None,
    dtype: str,
    metrics: Mapping[str, Any],
    state: Path | None = None,
    recorded: Records | None = None,
    updates: int = 0,
    adapter: Path | None = None,
    history: Sequence[Mapping[str, Any]] = (),
    record: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> None:
    """Write `out` atomically from a `model`, or an `adapter` folder in its place.

    The folder `state` (whose files `recorded` describes) moves into it, with the weights that become the reference if
    `previous` has none; without one the checkpoint is the start of a run. Converts `model` to `dtype`, so it cannot
    train further. Tokenizer files come from `previous`. With `replace` a checkpoint at `out` makes room in the end.
    """
    import torch

    known = {f"{STATE}/{name}": one for name, one in (recorded or {}).items()}
    refuse_existing(out, replace=replace)
    with building(out) as partial:
        if state is not None:
            state.rename(partial / STATE)
        _copy_companions(previous.model, partial / MODEL)
        if adapter is not None:
            adapter.rename(partial / ADAPTER)
            write_base(partial / MODEL, base_under(previous.model), place=out / MODEL, adapter=partial / ADAPTER)
        elif model is not None:
            if state is not None and previous.reference is not None:
                for file in previous.reference.glob(f"{REFERENCE}*.safetensors"):
                    _link_or_copy(str(file), str(partial / STATE / file.name))
                start = f"{STATE}/{REFERENCE}"
                known |= {name: one for name, one in _recorded(previous).items() if name.startswith(start)}
            model.to(getattr(torch, dtype)).save_pretrained(partial / MODEL, max_shard_size=FILE_BYTES)
        (partial / HISTORY).write_text("".join(json.dumps(one, allow_nan=False) + "\n" for one in history))
        _finish(partial, out, updates=updates, metrics=metrics, record=record, known=known)


def carry_over(
    previous: Checkpoint,
    out: Path,
    *,
    metrics: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
    replace: bool = False,
) -> None:
    """Make `out` a checkpoint with the same weights and state, as hard links if the file system has them.

    Raises UserError if a file is not as `previous` recorded it: damage would spread with every link.
    """
    parts = {MODEL: previous.model, STATE: previous.state, ADAPTER: previous.adapter}
    verify_model(previous.model, [part for part, folder in parts.items() if folder is not None])
    base, known = base_of(previous.model), _recorded(previous)
    refuse_existing(out, replace=replace)
    with building(out) as partial:
        if not Path(previous.model).is_dir() or (base is not None and previous.adapter is None):
            from rla.models.load import load_model

            known = {}
            _copy_companions(previous.model, partial / MODEL)
            load_model(previous.model).save_pretrained(partial / MODEL)
            parts.pop(MODEL)
        for part, folder in parts.items():
            if folder is not None:
                ignored = shutil.ignore_patterns(".*", BASE) if part == MODEL else None
                shutil.copytree(folder, partial / part, copy_function=_link_or_copy, ignore=ignored)
        if base is not None and previous.adapter is not None:
            known.pop(f"{MODEL}/{BASE}", None)
            write_base(partial / MODEL, base, place=out / MODEL, adapter=partial / ADAPTER)
        (partial / HISTORY).touch()
        _finish(partial, out, updates=previous.updates, metrics=metrics or {}, record=record, known=known)


def publish(partial: Path, place: Path) -> None:
    """Flush every file of `partial` to the disk, then rename it to `place`."""
    _flush(*partial.rglob("*"), partial)
    partial.rename(place)
    _flush(place.parent)


def checkpoint_file(folder: Path) -> Callable[[Path], bool]:
    """Whether a path below the checkpoint `folder` is one that rla wrote: in its parts, the files that it recorded, or
    any file if there is no record.
    """
    recorded = None
    with suppress(UserError):  # a damaged record
        recorded = read_records(folder / FILES)

    def ours(path: Path) -> bool:
        if path.parts[0] in PARTS:
            return recorded is None or path.as_posix() in recorded
        return str(path) in {MANIFEST, METRICS, HISTORY, PRUNED, FILES}

    return ours


def refuse_existing(out: Path, *, replace: bool = False) -> None:
    """Raises UserError unless `out` is absent, empty, or a checkpoint of ours that is to be replaced."""
    if replace and (out / MANIFEST).is_file():
        refuse_unlike(out, checkpoint_file(out))
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists already: remove it or name another folder")


def _finish(
    partial: Path,
    out: Path,
    *,
    updates: int,
    metrics: Mapping[str, Any],
    record: Mapping[str, Any] | None,
    known: Records,
) -> None:
    """Write the records of a whole checkpoint, then give it its name."""
    files = record_files(partial, known=known)
    files = {name: one for name, one in files.items() if name.partition("/")[0] in PARTS}
    content = {VERSION: __version__, "updates": updates, "digest": joint_digest(below(files, MODEL)), **(record or {})}
    write_records(partial, files)
    (partial / MANIFEST).write_text(json.dumps(sealed(content), indent=2) + "\n")
    write_json(partial / METRICS, dict(metrics))
    _flush(*partial.rglob("*"), partial)
    take_place(partial, out, checkpoint_file)
    _flush(out.parent)


def _flush(*paths: Path) -> None:
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _recorded(previous: Checkpoint) -> dict[str, Mapping[str, Any]]:
    """The recorded size and digest of each file of `previous`: its hard links need not be digested again."""
    around = checkpoint_around(previous.model)
    if around is not None:
        return dict(checkpoint_records(around))
    return {f"{MODEL}/{name}": one for name, one in (model_records(previous.model) or {}).items()}


def _copy_companions(source: Path | str, folder: Path) -> None:
    """Copy tokenizer, configuration and templates, byte for byte if `source` is a folder."""
    folder.mkdir(parents=True)
    if not Path(source).is_dir():
        from rla.models.load import load_tokenizer

        load_tokenizer(source).save_pretrained(folder)
        return
    for file in Path(source).iterdir():
        if file.is_file() and not file.name.startswith(".") and not has_weights(file.name) and file.name != BASE:
            shutil.copy(file, folder / file.name)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
