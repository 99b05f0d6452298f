"""Digests: one that identifies an artifact, and the recorded ones of the files in a checkpoint or model folder.

Sizes and SHA-256 digests are recorded when the files are written, and compared before they are used:

    files.json    {"files": {"model/config.json": {"bytes": 741, "sha256": "..."}, ...}, "checksum": "..."}

Threads read one file each: hashlib releases the interpreter lock. A core digests 1 to 2 GB/s if the processor has
instructions for SHA-256, and about 0.4 GB/s without. Hidden files, which tools and systems leave, are ignored.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.atomic import write_json
from rla.store.layout import making_call
from rla.store.record import MANIFEST, STARTED, optional_json, read_regular, record_text, sealed, unfinished

FILES = "files.json"
KEY = "files"
THREADS = 16  # at most: few file systems read faster than so many cores digest

Records = Mapping[str, Mapping[str, Any]]  # path below the folder -> bytes and sha256


def record_files(
    folder: Path, *, known: Records | None = None, share: tuple[int, int] = (0, 1)
) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of all files below `folder`, in order. Entries of `known` are taken over: links to those files.

    `share` (rank, world): only every world-th file, because other ranks record the others.
    """
    names = _names(folder)
    found = {name: dict(known[name]) for name in names if known and name in known}
    sizes = {name: (folder / name).stat().st_size for name in names if name not in found}
    digests = _share_of_digests(folder, sizes, share)
    found |= {name: {"bytes": sizes[name], "sha256": one} for name, one in digests.items()}
    return {name: found[name] for name in names if name in found}


def joint_digest(records: Records) -> str:
    """SHA-256 over names and contents of all files, from the records of each."""
    lines = (f"{Path(name)}\0{one['sha256']}\n" for name, one in sorted(records.items(), key=lambda at: Path(at[0])))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def below(records: Records, part: str) -> dict[str, Mapping[str, Any]]:
    """The records of the files in the subfolder `part`, by their paths in it."""
    start = f"{part}/"
    return {name.removeprefix(start): one for name, one in records.items() if name.startswith(start)}


def write_records(folder: Path, records: Records) -> None:
    """`files.json`, which holds its own checksum."""
    write_json(folder / FILES, sealed({KEY: records}))


def read_records(file: Path) -> dict[str, dict[str, Any]] | None:
    """The records in `file`; None if it does not exist or holds none. Raises UserError if it is damaged."""
    found = (optional_json(file) or {}).get(KEY)
    if found is None:
        return None
    try:
        return {str(name): {"bytes": int(one["bytes"]), "sha256": str(one["sha256"])} for name, one in found.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(f"{file}: not a record of files; call {making_call(file)} again") from None


def verify_recorded(
    folder: Path,
    records: Records,
    *,
    remedy: str,
    wanted: Callable[[str], bool] = lambda name: True,
    share: tuple[int, int] = (0, 1),
) -> None:
    """UserError if a file whose path is `wanted` differs from its record, is missing, or was never recorded.

    `share` (rank, world): only every world-th file is digested, because other ranks take the others.
    """
    expected = {name: one for name, one in records.items() if wanted(name)}
    for name in sorted(expected.keys() | {name for name in _names(folder) if wanted(name)}):
        path = folder / name
        if name not in expected:
            raise UserError(f"{path}: not of the files that were written here; move it away")
        if not path.is_file():
            raise UserError(f"{path}: missing; {remedy}")
        if path.stat().st_size != expected[name]["bytes"]:
            raise UserError(f"{path}: changed since it was written (it has another size); {remedy}")
    sizes = {name: one["bytes"] for name, one in expected.items()}
    for name, found in _share_of_digests(folder, sizes, share).items():
        if found != expected[name]["sha256"]:
            raise UserError(f"{folder / name}: changed since it was written (it has another SHA-256); {remedy}")


def _names(folder: Path) -> list[str]:
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts))


def _share_of_digests(folder: Path, sizes: Mapping[str, int], share: tuple[int, int]) -> dict[str, str]:
    """SHA-256 of the files of this rank, dealt out by falling size so that shares are alike."""
    rank, world = share
    names = sorted(sizes, key=lambda name: (sizes[name], name), reverse=True)[rank::world]
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        return dict(zip(names, pool.map(file_digest, (folder / name for name in names)), strict=True))


class UnreadableFile(UserError):
    """The system refuses to read a file, which may be whole."""


def file_digest(path: Path) -> str:
    """SHA-256 of a file, as hex digits. Raises UnreadableFile."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UnreadableFile(f"{path}: cannot be read ({error.strerror or error}); mend that and call again") from None


SAMPLE = 1 << 20


def digest(path: Path) -> str:
    """16 hex digits that identify an artifact: its manifest, checkpoint record, or the file itself."""
    for record in (path / MANIFEST, path / "checkpoint.json"):
        with suppress(FileNotFoundError):  # another call may be replacing it
            if record.is_file():
                return hashlib.sha256(record_text(read_regular(record))).hexdigest()[:16]
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    if (path / "config.json").is_file():
        return folder_digest(path)
    if (path / STARTED).is_file():
        raise unfinished(path)
    raise UserError(f"{path}: not a complete shard or checkpoint; run {making_call(path)}, again if it was interrupted")


def folder_digest(folder: Path) -> str:
    """Of a plain model folder: names, sizes and contents; of a file beyond 64 MiB its time, first and last MiB."""
    found = hashlib.sha256()
    for path in sorted(entry for entry in folder.iterdir() if entry.is_file() and not entry.name.startswith(".")):
        size = path.stat().st_size
        found.update(f"{path.name}:{size}".encode())
        with path.open("rb") as file:
            if size <= 64 * SAMPLE:
                found.update(file.read())
            else:
                found.update(str(path.stat().st_mtime_ns).encode() + file.read(SAMPLE))
                file.seek(-SAMPLE, 2)
                found.update(file.read())
    return found.hexdigest()[:16]
