"""What a mirror knows of its files: which version of the store each one is, as it lay here then.

`<mirror>/.store/journal.jsonl`, a line for each transfer: key, stamp (the store's name of a version), size and time of
the file here. The last line of a key counts. A line that a killed call has left half is passed over: its file is then
compared with the store.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from rla.errors import UserError
from rla.store.aside import alone_in
from rla.store.atomic import write_text
from rla.store.layout import MIRRORED

FOLDER, JOURNAL = Path(MIRRORED).parent, "journal.jsonl"


@dataclass(frozen=True, slots=True)
class Known:
    """A file as it was transferred. `stamp`: of the store's version; `size`, `mtime_ns`: of the file here."""

    stamp: str
    size: int
    mtime_ns: int

    def is_still(self, path: Path) -> bool:
        """Whether the file here is as it was."""
        try:
            stat = path.stat()
        except OSError:
            return False
        return (stat.st_size, stat.st_mtime_ns) == (self.size, self.mtime_ns)


class Journal:
    """Of one mirror. Several threads and processes may write to it."""

    def __init__(self, mirror: Path, url: str) -> None:
        self.folder = mirror / FOLDER
        self.folder.mkdir(parents=True, exist_ok=True)
        address = mirror / MIRRORED
        said = address.read_text().strip() if address.is_file() else None
        if said is None:
            write_text(address, f"{url}\n")
        elif said != url:
            raise UserError(f"{mirror}: the mirror of {said}; let RLA_MIRRORS name another folder for {url}")
        self._lock = Lock()
        self.known: dict[str, Known] = {}
        self.read()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process brings files into this mirror meanwhile."""
        with alone_in(self.folder):
            self.read()
            yield

    def read(self) -> None:
        """What all processes have written."""
        known: dict[str, Known] = {}
        try:
            lines = (self.folder / JOURNAL).read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        for line in lines:
            try:
                key, *rest = json.loads(line)
                if rest:
                    stamp, size, mtime_ns = rest
                    known[key] = Known(str(stamp), int(size), int(mtime_ns))
                else:
                    known.pop(key, None)
            except (ValueError, TypeError):
                continue
        with self._lock:
            self.known = known

    def note(self, key: str, stamp: str, stat: os.stat_result) -> None:
        """The file with this `stat` is the version `stamp` of the store."""
        found = Known(stamp, stat.st_size, stat.st_mtime_ns)
        with self._lock:
            self.known[key] = found
            self._append([key, found.stamp, found.size, found.mtime_ns])

    def forget(self, key: str) -> None:
        with self._lock:
            if self.known.pop(key, None) is not None:
                self._append([key])

    def _append(self, line: list[object]) -> None:
        descriptor = os.open(self.folder / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            os.write(descriptor, f"\n{json.dumps(line)}\n".encode())  # a half line before it ends here
        finally:
            os.close(descriptor)
