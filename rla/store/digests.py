"""What identifies an artifact that a stage reads: a digest of its record, or of its files where it has none."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rla.errors import UserError
from rla.store.enclosed import enclosed_text
from rla.store.layout import making_call
from rla.store.regular import read_regular
from rla.store.slices import MANIFEST, STARTED, unfinished

SAMPLE = 1 << 20


def digest(path: Path) -> str:
    """16 hex digits that identify an artifact: its manifest, checkpoint record, or the file itself."""
    for record in (path / MANIFEST, path / "checkpoint.json"):
        if record.is_file():
            return hashlib.sha256(enclosed_text(read_regular(record))).hexdigest()[:16]
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
    for path in sorted(entry for entry in folder.iterdir() if entry.is_file()):
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
