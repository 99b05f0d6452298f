"""Folders that appear whole, take the place of another one, and are removed. Only files that `rla` wrote are removed: a
folder that holds anything else is refused before the first file goes.

    .<name>.tmp     a folder that is being made
    .<name>.old     the old folder while the new one takes its place
    .<name>.gone    the old folder while its files are removed

The old folder is there, whole, until the new one is complete, and a folder that is being removed never has its name: a
kill leaves no half of one that could be read. A record next to the folder moves into the old one with it
(`.replaced.json`), so that no folder is ever found with another one's record.

The second half marks the parts of a checkpoint that were removed to save space (`pruned.json`). The marker is written
before a file is removed, so a part that it names is never read. Record and metrics of a checkpoint always stay.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.atomic import is_still, lock_folder, write_json
from rla.store.record import optional_json

REPLACED = ".replaced.json"  # in a folder that moved aside: the record that lay next to it
SHOWN = 3

# Of a folder: whether `rla` may have written the file with this path below it.
Ours = Callable[[Path], Callable[[Path], bool]]


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """An empty folder that is renamed to `folder` when the block ends, and removed if it fails.

    Raises UserError if `folder` exists, or another call is making it.
    """
    with building(folder) as partial:
        if folder.exists():
            raise UserError(f"{folder} exists already: remove it or name another folder")
        yield partial
        partial.rename(folder)


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """An empty folder next to `folder`, removed when the block ends unless the block has renamed it.

    Raises UserError if another call is making the same.
    """
    partial = folder.with_name(f".{folder.name}.tmp")
    partial.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder}: another call is making it; wait for its end, or end it") from None
        except OSError:  # a file system without locks
            pass
        if not is_still(partial, descriptor):  # a call that has just ended has renamed it
            raise UserError(f"{folder}: another call has just made it; call again")
        try:
            for left in partial.iterdir():  # by a call that was killed
                shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
            yield partial
        finally:
            if is_still(partial, descriptor):  # and not one that the next call has begun
                shutil.rmtree(partial, ignore_errors=True)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBeside:
    """The record next to a folder, with its content for the new folder."""

    file: Path
    content: Mapping[str, Any]


def bring_back(place: Path) -> None:
    """For readers: the old folder gets its name back if a killed call has left neither. Nothing is removed.

    One whose record has moved with it waits for the next call that writes it, and so does one that may not be moved:
    the reader then reports the missing folder.
    """
    with suppress(OSError, UserError):
        if os.path.lexists(place) or not os.path.lexists(old := _sibling(place, "old")):
            return
        with lock_folder(place.parent):
            if not os.path.lexists(place) and not os.path.lexists(old / REPLACED):
                old.rename(place)


def settle(place: Path, ours: Ours, *, record: Path | None = None) -> None:
    """End the replacing that a killed call has begun: the old folder comes back, unless the new one is there already.

    `record`: the file next to the folder that belongs to it.
    """
    if os.path.lexists(_sibling(place, "old")) or os.path.lexists(_sibling(place, "gone")):
        with lock_folder(place.parent):
            _settle(place, ours, record)


def take_place(partial: Path, place: Path, ours: Ours, *, beside: RecordBeside | None = None) -> None:
    """`partial` becomes `place`, and the folder that lay there is removed. `beside`: the record that is written while
    both are aside.

    Raises UserError, and OSError if the system refuses, with the old folder in its place: it may hold files that are
    not `ours`.
    """
    record = None if beside is None else beside.file
    old, gone = _sibling(place, "old"), _sibling(place, "gone")
    with lock_folder(place.parent):
        _settle(place, ours, record)
        replaced = False
        try:
            if place.is_dir() and any(place.iterdir()):
                refuse_unlike(place, ours(place))
                place.rename(old)
                replaced = True
            if beside is not None:
                if replaced and beside.file.exists():
                    beside.file.rename(old / REPLACED)
                write_json(beside.file, beside.content)
            partial.rename(place)
        except BaseException as error:
            if replaced:
                _back(old, place, record)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise UserError(f"{place} exists already: remove it or name another folder") from None
            raise
        if replaced:
            old.rename(gone)
            _clear(gone, ours)


def _sibling(place: Path, why: str) -> Path:
    return place.with_name(f".{place.name}.{why}")


def _settle(place: Path, ours: Ours, record: Path | None) -> None:
    old, gone = _sibling(place, "old"), _sibling(place, "gone")
    _clear(gone, ours)
    if os.path.lexists(old):
        if os.path.lexists(place):
            old.rename(gone)
            _clear(gone, ours)
        else:
            _back(old, place, record)


def _back(old: Path, place: Path, record: Path | None) -> None:
    # The record first: after a kill in between the old folder is still aside, and the next call goes on.
    if record is not None and (old / REPLACED).exists():
        (old / REPLACED).replace(record)
    old.rename(place)


def _clear(gone: Path, ours: Ours) -> None:
    if not os.path.lexists(gone):
        return
    refuse_unlike(gone, lambda path: path == Path(REPLACED) or ours(gone)(path))
    entries = sorted(gone.rglob("*"), reverse=True)
    for path in entries:
        if path.is_symlink() or not path.is_dir():
            remove_file(path)
    for path in (*(path for path in entries if path.is_dir() and not path.is_symlink()), gone):
        with _removing(path):
            path.rmdir()


def refuse_unlike(folder: Path, ours: Callable[[Path], bool]) -> None:
    """UserError for a link, and for a folder with a file or link that is not `ours` (by its path below it)."""
    if folder.is_symlink():
        raise UserError(f"{folder}: a link, so it is not replaced; remove it, or choose another folder")
    files = [path for path in sorted(folder.rglob("*"), reverse=True) if path.is_symlink() or not path.is_dir()]
    refuse_others(folder, [path for path in files if not ours(path.relative_to(folder))])


def refuse_others(folder: Path, others: Sequence[Path]) -> None:
    """UserError if there are others."""
    if others:
        names = ", ".join(path.name for path in others[:SHOWN])
        more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        raise UserError(
            f"{folder}: holds what rla did not write ({names}{more}), so it is not replaced; "
            "move that away, or choose another folder"
        )


def remove_file(path: Path) -> None:
    """Raises UserError if the system refuses."""
    with _removing(path):
        path.unlink(missing_ok=True)


@contextmanager
def _removing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path}: cannot be removed ({error.strerror or error}); mend that and call the command again"
        ) from None


PRUNED = "pruned.json"
STATE, MODEL, ADAPTER_PART = "state", "model", "adapter"
PARTS = (STATE, MODEL, ADAPTER_PART)


def pruned_parts(checkpoint: Path) -> frozenset[str]:
    """The parts of a checkpoint folder that were removed. Raises UserError for a marker that is not JSON."""
    marker = optional_json(checkpoint / PRUNED)
    return frozenset() if marker is None else frozenset(marker["parts"])


def refuse_pruned(checkpoint: Path, part: str) -> None:
    """UserError with the command that makes the checkpoint again if `part` was removed."""
    if part in pruned_parts(checkpoint):
        raise UserError(
            f"{checkpoint}: its {part}/ was pruned to save space; take a later checkpoint{_remaking(checkpoint)} "
            "(checkpoints.keep and checkpoints.export_every say which ones stay)"
        )


def _remaking(checkpoint: Path) -> str:
    """How to make the checkpoint of a run again, from the last one before it that is whole; empty for other folders.

    A finished checkpoint is never trained again, so its folder goes first. `checkpoints.keep=0`: the stage would prune
    its own output again.
    """
    numbered, name = checkpoint.parent, checkpoint.name
    if name not in ("policy", "rm") or not numbered.name.isdecimal():
        return ""
    last = first = int(numbered.name)
    while pruned_parts(numbered.with_name(str(first - 1)) / name):
        first -= 1
    run, i = shlex.quote(str(numbered.parent)), "$i" if first < last else str(last)
    command = f"rm -r {run}/{i}/{name} && rla train-{name} --run {run} --iteration {i} --set checkpoints.keep=0"
    if first < last:
        command = f"for i in $(seq {first} {last}); do {command} || break; done"
    return f", or make it again with `{command}`"
