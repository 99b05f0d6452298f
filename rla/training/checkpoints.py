"""Checkpoint folders (`rla.models.checkpoint` says what lies in one): opening one to train on, and writing the next.

Opening: a file that the train state lacks is an error, before any model is loaded.

    trained            weights, moments, rng, state.json, and the reference, which is the base where there is an adapter
    a start of a run   no state, as a plain model folder has none: a warm start, or a model that was carried over

Without this, training would quietly begin anew from the exported weights, or measure KL to them. A file that changed is
an error as well (`verify_together`). Whoever reads `model/` alone opens it with `open_checkpoint`, which asks for
nothing else.

Writing: whole or not at all. A checkpoint that is replaced stays, with its own record, until the new one is complete
(`rla.store.removing`).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla import __version__
from rla.errors import UserError
from rla.models.adapters import base_of, write_base
from rla.models.checkpoint import (
    ADAPTER,
    BASE,
    HISTORY,
    MANIFEST,
    METRICS,
    REFERENCE,
    VERSION,
    Checkpoint,
    is_companion,
    open_checkpoint,
)
from rla.models.verifying import (
    base_under,
    checkpoint_around,
    checkpoint_records,
    model_records,
    verify_model,
    verify_parts,
)
from rla.store.atomic import write_json
from rla.store.digests import FILES, Records, below, joint_digest, read_records, record_files, write_records
from rla.store.record import sealed
from rla.store.removing import MODEL, PARTS, PRUNED, STATE, building, refuse_pruned, refuse_unlike, take_place

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rla.training.ranks import Ranks

TRAINED = ("weights", "moments", "rng")  # `<name>.safetensors`, or `<name>-00000.safetensors` and on
COUNTS = "state.json"


def open_to_train(source: Path | str) -> Checkpoint:
    """Raises UserError as `open_checkpoint` does, and for a missing file of the train state."""
    checkpoint = open_checkpoint(source)
    refuse_pruned(Path(source), STATE)
    if checkpoint.digest is None or not checkpoint.updates:
        return checkpoint
    state = Path(checkpoint.model).parent / "state"
    for name in (*TRAINED, *(() if checkpoint.adapter else (REFERENCE,))):
        if not any((state / f"{name}{number}.safetensors").is_file() for number in ("", "-00000")):
            raise UserError(_missing(state / f"{name}.safetensors"))
    if not (state / COUNTS).is_file():
        raise UserError(_missing(state / COUNTS))
    return checkpoint


def verify_together(checkpoint: Checkpoint, ranks: Ranks) -> None:
    """A common call of all ranks: each digests its part of the files, so that all are read once.

    Raises UserError at every rank where one of them finds a file that changed since it was written.
    """
    verify = verify_model if checkpoint.state is None else verify_parts  # the weights alone were named
    ranks.agree(lambda: verify(checkpoint.model, share=(ranks.rank, ranks.world)))


def record_together(folder: Path, ranks: Ranks) -> dict[str, dict[str, Any]]:
    """The records of a folder that the first rank has written. A common call of all ranks, as `verify_together` is."""
    ranks.wait()
    own: dict[str, dict[str, Any]] = {}
    ranks.agree(lambda: own.update(record_files(folder, share=(ranks.rank, ranks.world))))
    found = {name: one for some in ranks.gather(own) for name, one in some.items()}
    return {name: found[name] for name in sorted(found)}


def _missing(file: Path) -> str:
    return (
        f"{file}: missing, so training cannot go on from this checkpoint; restore the file or take another "
        f"checkpoint (to begin anew from the weights alone, name {file.parent.with_name('model')})"
    )


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
    """Write `out` atomically from a model and a folder with its state, which moves into it, or from an adapter's.

    `recorded`: the files of `state`. Without `state` (a warm start) the checkpoint is the start of a run. An `adapter`
    takes the place of `model`. Converts `model` to `dtype`, so it cannot train further. Tokenizer files come from
    `previous`. `replace`: a checkpoint at `out` makes room in the end.
    """
    import torch

    from rla.training.tensors import FILE_BYTES

    known = {f"state/{name}": one for name, one in (recorded or {}).items()}
    with _fresh(out, replace=replace) as partial:
        if state is not None:
            state.rename(partial / "state")
        _export_companions(previous.model, partial / "model")
        if adapter is not None:
            adapter.rename(partial / ADAPTER)
            write_base(partial / "model", base_under(previous.model), place=out / "model", adapter=partial / ADAPTER)
        elif model is not None:
            if state is not None:
                _keep_reference(previous, partial / "state", dtype=dtype)
                known |= _linked(previous, (REFERENCE,))
            # Files of a few GiB are digested side by side, one large file is not.
            model.to(getattr(torch, dtype)).save_pretrained(partial / "model", max_shard_size=FILE_BYTES)
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
    """`out` becomes a checkpoint with the very same weights and state, as hard links where possible.

    `replace` as `write_checkpoint` takes it. Raises UserError where a file changed since `previous` recorded it: a
    damaged file would be damaged wherever it is linked, and its own stage alone can make it again.
    """
    own = {MODEL: previous.model, STATE: previous.state, ADAPTER: previous.adapter}
    verify_parts(previous.model, [part for part, folder in own.items() if folder is not None])
    base, known = base_of(previous.model), _linked(previous, ("",))
    with _fresh(out, replace=replace) as partial:
        if not Path(previous.model).is_dir() or (base is not None and previous.adapter is None):
            from rla.models.load import load_model

            known = {}
            _export_companions(previous.model, partial / "model")
            load_model(previous.model).save_pretrained(partial / "model")
        else:
            ignored = shutil.ignore_patterns(".*", BASE)
            shutil.copytree(previous.model, partial / "model", copy_function=_link_or_copy, ignore=ignored)
        if previous.state is not None:
            shutil.copytree(previous.state, partial / "state", copy_function=_link_or_copy)
        if previous.adapter is not None:
            shutil.copytree(previous.adapter, partial / ADAPTER, copy_function=_link_or_copy)
        if base is not None and previous.adapter is not None:
            known = {name: one for name, one in known.items() if name != f"{MODEL}/{BASE}"}
            write_base(partial / "model", base, place=out / "model", adapter=partial / ADAPTER)
        (partial / HISTORY).touch()
        _finish(partial, out, updates=previous.updates, metrics=metrics or {}, record=record, known=known)


def publish(partial: Path, place: Path) -> None:
    """Flush every file of `partial` to the disk, then rename it to `place`."""
    _flush_all(partial)
    partial.rename(place)
    _flush(place.parent)


def _flush_all(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        _flush(path)


def checkpoint_file(folder: Path) -> Callable[[Path], bool]:
    """Whether a path below the checkpoint `folder` is one that `rla` writes there: of its parts, what it says that it
    wrote, or anything where it does not say so.
    """
    files = {MANIFEST, METRICS, HISTORY, PRUNED, FILES}
    recorded = None
    with suppress(UserError):  # a damaged record says nothing
        recorded = read_records(folder / FILES)

    def ours(path: Path) -> bool:
        if path.parts[0] in PARTS:
            return recorded is None or path.as_posix() in recorded
        return str(path) in files

    return ours


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_existing(out: Path, *, replace: bool = False) -> None:
    """Raises UserError unless `out` is free (an empty folder is), or is to be replaced and a checkpoint of ours."""
    if replace and (out / MANIFEST).is_file():
        refuse_unlike(out, checkpoint_file(out))
    elif out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists already: remove it or name another folder")


@contextmanager
def _fresh(out: Path, *, replace: bool) -> Iterator[Path]:
    """An empty folder to fill and to give its name. Of equal calls at once the later one finds the checkpoint there."""
    refuse_existing(out, replace=replace)
    with building(out) as partial:
        refuse_existing(out, replace=replace)
        yield partial


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
    _flush_all(partial)
    take_place(partial, out, checkpoint_file)
    _flush(out.parent)


def _linked(previous: Checkpoint, names: tuple[str, ...]) -> Records:
    """What `previous` has recorded of the files that a new checkpoint links: those of `state/` that begin with one of
    `names`, and all others where that is any name.
    """
    around = checkpoint_around(previous.model)
    if around is None:
        found = {f"{MODEL}/{name}": one for name, one in (model_records(previous.model) or {}).items()}
    else:
        found = checkpoint_records(around) or {}
    starts = tuple("" if not name else f"state/{name}" for name in names)
    return {name: one for name, one in found.items() if name.startswith(starts)}


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
            if file.is_file() and not file.name.startswith(".") and is_companion(file.name) and file.name != BASE:
                shutil.copy(file, folder / file.name)
        return
    from rla.models.load import load_tokenizer

    load_tokenizer(source).save_pretrained(folder)


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
