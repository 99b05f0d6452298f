"""DVC's own files after a kill: it writes them in place, so a death in mid-write leaves what it refuses to read.

`dvc.lock`: the entries before the cut are whole; they are kept, the rest goes. A stage whose entry is gone is called
again, finds its output complete and of the same origin, and ends at once. `.dvc/tmp/rwlock`: says which processes use
which path; one that cannot be read says nothing and goes.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from rla.store.atomic import write_text

ENTRY = re.compile(r"^  \S.*:\s*$", re.MULTILINE)  # `  rollout@3:` under `stages:`


def mend(folder: Path) -> None:
    """Both files of the DVC project in `folder`."""
    repair(folder / "dvc.lock")
    users = folder / ".dvc" / "tmp" / "rwlock"
    try:
        json.loads(users.read_text() if users.exists() else "{}")
    except json.JSONDecodeError:
        users.unlink(missing_ok=True)


def repair(path: Path) -> bool:
    """Cut a broken lock file back to its last whole entry; true where something was cut."""
    if not path.exists():
        return False
    text = path.read_text()
    if whole(text):
        return False
    text = text[: text.rfind("\n") + 1]
    ends = [found.start() for found in ENTRY.finditer(text)]
    for end in [len(text), *reversed(ends)]:
        if whole(text[:end]):
            write_text(path, text[:end])
            return True
    path.unlink()
    return True


def whole(text: str) -> bool:
    """Whether DVC would read it: a schema, and for each stage a command and for each path its digest."""
    try:
        data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return False
    if not text.endswith("\n") or not isinstance(data, dict) or "schema" not in data:
        return False
    stages = data.get("stages")
    return isinstance(stages, dict) and all(whole_entry(entry) for entry in stages.values())


def whole_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("cmd"), str | list):
        return False
    files = [item for key in ("deps", "outs") if key in entry for item in entry[key] or [None]]
    return all(isinstance(item, dict) and {"path", "md5", "size"} <= set(item) for item in files)
