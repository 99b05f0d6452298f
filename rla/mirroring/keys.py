"""Keys: paths of a run's files below its folder, in the store as in the mirror. What a store lists is not trusted."""

from __future__ import annotations

import re
from pathlib import Path

from rla.errors import UserError

TOP = {"config.yaml", "init", "test", "eval", "splits", "report", "timings", "tensorboard", "tracking"}  # and numbers
# What says that the rest of its folder is whole: it is sent, and fetched, after all of that.
RECORD = re.compile(r"_manifest(-\d+-of-\d+)?\.parquet|manifest(-\d+-of-\d+)?\.json|checkpoint\.json|stage\.json")
SAVED = re.compile(r"update-\d+")  # of `<checkpoint>.partial`: all else there is unfinished
FIRST = re.compile(r"init/[^/]+/(?:config\.json|(.+\.(?:safetensors|bin)))")  # an ordinary model folder
CHECKPOINT = re.compile(r"(?:.+/)?(?:policy|rm)/(?:model|state|adapter)/.+")
# Nobody reads them to make something, and every call writes them anew: the last one stays.
LOOSE = re.compile(r"(config\.yaml|(timings|tensorboard|tracking|report)/.*|((.+/)?[^/]*\d/)?[a-z-]+\.json)")
PARTIAL = ".partial"


def checked_key(name: str, root: str) -> str | None:
    """The key of a listed object. None for the mark of a folder, which some programs make.

    Raises UserError for one that would lead out of the run's folder.
    """
    key = name.removeprefix(f"{root}/")
    if name.endswith("/"):
        return None
    if not name.startswith(f"{root}/") or not is_plain(key):
        raise UserError(f"{name!r}: an object whose name is no path below {root}; remove it from the store")
    return key


def is_plain(key: str) -> bool:
    """Whether a key stays below its folder on every system."""
    parts = key.split("/")
    return not ({"", ".", ".."}.intersection(parts) or "\\" in key or "\0" in key)


def belongs(key: str) -> bool:
    """Whether it is a file of a run that is finished: no temporary one, no log, nothing of somebody else's."""
    parts = Path(key).parts
    if not (parts[0] in TOP or parts[0].isdecimal()) or any(part.startswith(".") for part in parts):
        return False
    if any(part.endswith((".tmp", ".again")) for part in parts):
        return False
    inside = next((place for place, part in enumerate(parts) if part.endswith(PARTIAL)), None)
    return inside is None or (len(parts) > inside + 2 and SAVED.fullmatch(parts[inside + 1]) is not None)


def is_record(key: str) -> bool:
    first = FIRST.fullmatch(key)
    return RECORD.fullmatch(key.rpartition("/")[2]) is not None or (first is not None and first[1] is None)


def is_weight(key: str) -> bool:
    """Whether only those need it who load the model: all of a checkpoint but its records, and saved updates."""
    first = FIRST.fullmatch(key)
    return (first is not None and first[1] is not None) or CHECKPOINT.fullmatch(key) is not None or f"{PARTIAL}/" in key


def is_loose(key: str) -> bool:
    """Whether calls of two machines may each write their own."""
    return LOOSE.fullmatch(key) is not None and not is_record(key)


def folders_above(key: str) -> list[str]:
    """`1/policy/model/a` -> `1/policy/model`, `1/policy`, `1`."""
    parts = key.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]


def is_below(key: str, place: str) -> bool:
    """Whether a key is the file `place`, or lies in that folder; in "" all do."""
    return place in ("", key) or key.startswith(f"{place}/")
