"""Only what `rla` wrote is ever removed: a folder that holds anything else is refused before the first file goes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rla.errors import UserError
from rla.store.parts import KIND, opened_part, shard_parts

# In a shard folder. Hidden ones are those of a write that was killed.
OURS = r"part-\d{5,}\.parquet|_manifest(?:-\d+-of-\d+)?\.parquet|_started\.parquet"
SHARD_FILE = re.compile(rf"(?:{OURS})|\.(?:{OURS})(?:-\d+-of-\d+)?\.tmp")
SHOWN = 3


def foreign_files(folder: Path, *, recorded: bool) -> list[Path]:
    """What lies in a shard folder and was not written by `rla`: all of it, where nothing there says otherwise.

    `recorded`: a record says so. Readable parts say so themselves; those beside them are ours.
    """
    said = {path: _says_rla(path) for path in shard_parts(folder)}
    if not (recorded or any(said.values())):
        return sorted(folder.iterdir())
    others = {path for path in folder.iterdir() if not SHARD_FILE.fullmatch(path.name) or path.is_dir()}
    return sorted(others.union(path for path, ours in said.items() if ours is False))


def _says_rla(part: Path) -> bool | None:
    """Whether a Parquet file names a kind of shard; None where it cannot be read."""
    try:
        with opened_part(part) as file:
            return KIND.encode() in (file.metadata.metadata or {})
    except UserError:
        return None


def refuse_others(folder: Path, others: Sequence[Path]) -> None:
    """UserError where there are others."""
    if others:
        names = ", ".join(path.name for path in others[:SHOWN])
        more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        raise UserError(
            f"{folder}: holds what rla did not write ({names}{more}), so it is not replaced; "
            "move that away, or choose another folder"
        )


def remove_made(folder: Path, ours: Callable[[Path], bool]) -> None:
    """Remove a folder all of whose files and links are `ours` (by their path below it).

    Raises UserError, with nothing removed, where it holds anything else.
    """
    refuse_unlike(folder, ours)
    entries = sorted(folder.rglob("*"), reverse=True)
    for path in entries:
        if path.is_symlink() or not path.is_dir():
            remove_file(path)
    for path in (*(path for path in entries if path.is_dir() and not path.is_symlink()), folder):
        with _removing(path):
            path.rmdir()


def refuse_unlike(folder: Path, ours: Callable[[Path], bool]) -> None:
    """UserError for a link, and for a folder with a file or link that is not `ours` (by its path below it)."""
    if folder.is_symlink():
        raise UserError(f"{folder}: a link, so it is not replaced; remove it, or choose another folder")
    files = [path for path in sorted(folder.rglob("*"), reverse=True) if path.is_symlink() or not path.is_dir()]
    refuse_others(folder, [path for path in files if not ours(path.relative_to(folder))])


def remove_file(path: Path) -> None:
    """Raises UserError where the system refuses."""
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
