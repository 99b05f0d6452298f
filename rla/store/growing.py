"""A shard that another call is making, as a reader sees it who does not wait for its manifest.

Parts get their names whole, and say in their footers where they belong. `_started.parquet` names the origin of all of
them before the first is there, and the manifest names the same when the last is. A part may be replaced, or removed and
made anew, while the shard grows: so whoever relies on one keeps the digest of its file, which the manifest names in the
end.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rla.config.differences import shown_value
from rla.errors import UserError
from rla.store.layout import making_call
from rla.store.origin import unlike_text
from rla.store.parts import check_belonging, origin_digest, part_entry, shard_parts
from rla.store.schema import load_schema
from rla.store.slices import MANIFEST, STARTED, optional_record

IDENTITY = ("kind", "schema_version", "config_digest", "input_digests", "seed")  # of a shard: `shard_header`
Stamp = tuple[int, int, int]


class GrowingShard:
    """`look` first, then `new_parts`. `begun`: a call has begun the shard. `complete`: it has its manifest."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder, self.kind = folder, kind
        self.complete = False
        self._record: Mapping[str, Any] | None = None
        self._header: dict[str, Any] = {}
        self._seen: dict[Path, Stamp] = {}

    @property
    def begun(self) -> bool:
        return self._record is not None

    def look(self) -> None:
        """See how far it is. Raises UserError for a shard of another kind, and where one of another origin has taken
        the place of the one that was found first, or nothing has.
        """
        started = optional_record(self.folder, STARTED)
        manifest = optional_record(self.folder, MANIFEST)  # read last: it is there before the other goes
        found = started or manifest
        if found is None:
            if self.begun:
                raise UserError(f"{self.folder}: removed while it was followed; make it anew, then call this again")
            return
        path, record = found
        header = {key: record.get(key) for key in IDENTITY}
        if self._record is None:
            self._check_kind(path, header)
            self._record, self._header = record, header
        elif header != self._header:
            raise UserError(
                f"{self.folder}: replaced while it was followed ({unlike_text(self._record, record)}); "
                "call this again, and it follows the new one"
            )
        self.complete = manifest is not None and all(manifest[1].get(key) == header[key] for key in IDENTITY)

    def _check_kind(self, path: Path, header: Mapping[str, Any]) -> None:
        expected = {"kind": self.kind, "schema_version": load_schema(self.kind)["version"]}
        for key, value in expected.items():
            if header[key] != value:
                raise UserError(
                    f"{path}: its {key} is {shown_value(header[key])}, expected {shown_value(value)}; "
                    f"rerun {making_call(path)} with --overwrite"
                )

    def new_parts(self) -> list[Path]:
        """The parts that are there, or were replaced, since the last call; in order of their groups."""
        fresh = []
        for path in shard_parts(self.folder):
            stamp = part_stamp(path)
            if stamp is not None and self._seen.get(path) != stamp:
                self._seen[path] = stamp
                fresh.append(path)
        return fresh

    def entry(self, part: Path) -> dict[str, Any] | None:
        """What the manifest will say of a part. None where it is gone, damaged or of another origin: who makes the
        shard, or reads it when it is complete, says so.
        """
        try:
            check_belonging(part, self.kind, origin_digest(self._header))
            return part_entry(part)
        except (UserError, OSError):
            return None


def part_stamp(part: Path) -> Stamp | None:
    """What changes where a part is made anew; None where it is gone."""
    try:
        found = part.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
