"""Slices: one shard folder made by several calls, on one machine or on many, each with its share of the groups.

Slice i of n takes the groups whose index leaves i - 1 when divided by n. Parts carry the index of their group, so that
slices share a folder, or fill folders of their own whose files are put into one. A slice that has its parts writes
`_manifest-<i>-of-<n>.parquet`; whoever then finds all n of them writes `_manifest.parquet`, which is that of an
undivided call.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.enclosed import enclosed_text
from rla.store.layout import making_call
from rla.store.manifests import checked_manifest
from rla.store.regular import read_regular

MANIFEST = "_manifest.parquet"
STARTED = "_started.parquet"
CHECKSUM = "checksum"  # of the other keys of a manifest or of what a folder was started with


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Slice `index` of `count`. Index 0 stands for the call that starts all of them and plays nothing itself.

    `replaces`: the digest of a record of another origin, which the call that started this slice is to replace.
    """

    index: int = 1
    count: int = 1
    replaces: str | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, text: str) -> Slice:
        """`2/4`. Raises UserError."""
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise UserError(f"--slice {text}: expected i/n with 1 <= i <= n, such as 2/4")
        return cls(index=int(found[1]), count=int(found[2]))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def alone(self) -> bool:
        """Whether no other call writes to the folder now: this one may replace it."""
        return self.index == 0 or self.count == 1

    @property
    def tag(self) -> str:
        """What tells this slice's files from those of the others; empty for an undivided call."""
        return "" if self.count == 1 else f"-{self.index}-of-{self.count}"

    def takes(self, group: int) -> bool:
        """Whether the group is of this slice's share; shares differ by one group at most."""
        return group % self.count == self.index - 1

    def manifest(self, folder: Path) -> Path:
        return folder / f"_manifest{self.tag}.parquet"


WHOLE = Slice()
MOST_SLICES = 1 << 16
SHOWN = 3  # missing slices that an error names


def slice_manifests(folder: Path, count: int) -> dict[Slice, dict[str, Any] | None]:
    """The manifest of each of the `count` slices, None where it is not there yet. UserError for one that is none."""
    found = {part: optional_record(folder, part.manifest(folder).name) for part in slices(count)}
    return {part: record and countable(*record) for part, record in found.items()}


def countable(path: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """A slice's manifest, whose counts can be added up. Raises UserError where one is no number."""
    manifest = checked_manifest(path, record)
    odd = [name for name, count in manifest["counts"].items() if not isinstance(count, int | float)]
    if odd:
        raise UserError(f"{path}: its count {odd[0]} is no number; remove it, and call the stage of that slice again")
    return manifest


def slice_count(path: Path, record: Mapping[str, Any]) -> int:
    """How many slices a folder was begun in, as the record in the file `path` says. UserError where it is no number."""
    count = record.get("slices", 1)
    if type(count) is not int or not 1 <= count <= MOST_SLICES:
        raise UserError(f"{path}: no number of slices; remove this file, and call the stage with --overwrite")
    return count


def slices(count: int) -> list[Slice]:
    return [Slice(index=index, count=count) for index in range(1, count + 1)]


def joined(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The manifest of the whole: parts of all slices in order, counts added up; the rest is that of the first slice.

    It depends on the slices alone, so that calls that join them at the same time write the same.
    """
    parts = sorted((part for manifest in manifests for part in manifest["parts"]), key=lambda part: str(part["name"]))
    counts = {key: sum(manifest["counts"][key] for manifest in manifests) for key in manifests[0]["counts"]}
    whole = {key: value for key, value in manifests[0].items() if key not in ("slice", CHECKSUM)}
    return whole | {"rows": sum(part["rows"] for part in parts), "counts": counts, "parts": parts}


def unfinished(folder: Path) -> UserError:
    """The error for a folder that has no manifest: what is missing, and what to do."""
    remedy = f"run {making_call(folder)}, again if it was interrupted"
    if not folder.exists():
        return UserError(f"{folder} does not exist; {remedy}")
    started = optional_record(folder, STARTED)
    count = 1 if started is None else slice_count(*started)
    if count == 1:
        return UserError(f"{folder} is incomplete (no {MANIFEST}); {remedy}")
    missing = [part for part, manifest in slice_manifests(folder, count).items() if manifest is None]
    if not missing:
        return UserError(
            f"{folder}: its {count} slices are not joined; call {making_call(folder)} with --slice 1/{count}"
        )
    names = ", ".join(map(str, missing[:SHOWN])) + (f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else "")
    return UserError(
        f"{folder} is incomplete: no manifest of {'slice' if len(missing) == 1 else 'slices'} {names}; "
        f"call {making_call(folder)} with --slice {missing[0]}, or bring that slice's files here"
    )


def optional_record(folder: Path, name: str) -> tuple[Path, dict[str, Any]] | None:
    """A record with the file that it lies in, or None where there is none."""
    found = optional_json(folder / name)
    return None if found is None else (folder / name, found)


def record_digest(path: Path) -> str | None:
    """16 hex digits of the text of a record; None where there is none."""
    try:
        return hashlib.sha256(enclosed_text(read_regular(path))).hexdigest()[:16]
    except FileNotFoundError:
        return None


def is_complete(shard: Path) -> bool:
    """Whether the folder has a manifest, which is written last."""
    return (shard / MANIFEST).is_file()


def optional_json(path: Path) -> dict[str, Any] | None:
    """`read_json`, or None where there is no such file: another process may remove it at any time."""
    try:
        return read_json(path)
    except FileNotFoundError:
        return None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from disk, or a record of a shard; UserError names the file."""
    try:
        data = json.loads(enclosed_text(read_regular(path)))
    except (ValueError, RecursionError):  # no JSON, no UTF-8, a number too long, nested too deeply
        raise UserError(f"{path}: not valid JSON; remove its folder and rerun {making_call(path)}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a JSON object; rerun {making_call(path)}")
    if CHECKSUM in data and sealed(data) != data:
        raise UserError(
            f"{path}: changed since it was written (its checksum is of other content); "
            "rerun the stage that made it with --overwrite"
        )
    return data


def sealed(data: Mapping[str, Any]) -> dict[str, Any]:
    """The object with the checksum of all its other keys at its end."""
    rest = {key: value for key, value in data.items() if key != CHECKSUM}
    found = hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
    return rest | {CHECKSUM: found}
