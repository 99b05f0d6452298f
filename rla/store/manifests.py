"""What a manifest must hold before anyone relies on it: its parts with plain names, rows and bytes, and its counts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rla import __version__
from rla.config.load import shown_value
from rla.errors import UserError
from rla.store.layout import making_call

PART = re.compile(r"part-\d{5,}\.parquet")  # a plain name: no manifest leads out of its folder
COUNTED = ("episodes", "steps", "invalid_actions", "truncated", "context_stops", "env_errors")  # what is reckoned with


class Counts(dict[str, Any]):
    """The counts of a manifest. One that is missing is a flaw of the file, not of the program that asks for it."""

    def __init__(self, path: Path, counts: Mapping[str, Any]) -> None:
        super().__init__(counts)
        self.path = path

    def __missing__(self, key: str) -> Any:
        raise UserError(f"{self.path}: its counts have no {key}; {rerun(self.path)}")


def rerun(path: Path) -> str:
    """What to do about a flaw of a shard's file."""
    return f"rerun {making_call(path)} with --overwrite"


def checked_manifest(path: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest in the file `path`. UserError if another version wrote it, if it lacks
    parts or counts, or if they are malformed."""
    versions = manifest.get("versions")
    refuse_other_version(path, versions.get("rla") if isinstance(versions, dict) else None, remedy=rerun(path))
    parts, counts = manifest.get("parts"), manifest.get("counts")
    if not isinstance(parts, list) or not all(map(is_part, parts)):
        raise UserError(f"{path}: its parts are no list of names, rows, bytes and digests; {rerun(path)}")
    if len({part["name"] for part in parts}) != len(parts):
        raise UserError(f"{path}: it names a part twice; {rerun(path)}")
    total = sum(part["rows"] for part in parts)
    if manifest.get("rows", total) != total:
        raise UserError(f"{path}: its rows are not those of its parts; {rerun(path)}")
    inputs = manifest.get("input_digests", {})
    if not isinstance(inputs, dict) or not all(isinstance(found, str) for found in inputs.values()):
        raise UserError(f"{path}: its input_digests are no digests by name; {rerun(path)}")
    if not isinstance(counts, dict) or any(type(counts.get(name, 0)) is not int for name in COUNTED):
        raise UserError(f"{path}: its counts are no numbers by name; {rerun(path)}")
    return {**manifest, "counts": Counts(path, counts)}


def is_part(entry: Any) -> bool:
    """Whether an entry of `parts` says which file it is and how large."""
    if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str):
        return False
    sizes, digests = [entry.get("rows"), entry.get("bytes")], [entry.get("sha256"), entry.get("footer_sha256")]
    if not all(isinstance(digest, str) for digest in digests):
        return False
    return PART.fullmatch(name) is not None and all(type(size) is int and size >= 0 for size in sizes)


def refuse_other_version(place: Path, found: object, *, remedy: str) -> None:
    """UserError unless `found`, which is what `place` says of the version that wrote it, is this version."""
    if found != __version__:
        wrote = f"version {shown_value(found)}" if found else "an unknown version"
        raise UserError(f"{place}: written by {wrote} of rla, and this is {__version__}; {remedy}, or use that version")
