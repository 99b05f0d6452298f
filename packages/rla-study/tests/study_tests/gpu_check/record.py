"""The record of a check: rows that parts append while they run, and the JSON file that is made of them.

A part that is killed loses nothing that it has found, and neither do the parts before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROWS, RECORD = "rows.jsonl", "gpu.json"
PARTS = ("tests", "training", "generation", "logprobs", "loop")
ABOUT = ("state", "reason", "seconds", "machine")  # keys of a row that is about its part

Record = dict[str, dict[str, Any]]  # of each part: the keys above, and its rows


def add(out: Path, part: str, **row: Any) -> None:
    """Append a row in one write, so that processes may do so side by side."""
    with (out / ROWS).open("a") as file:
        file.write(json.dumps({"part": part, **row}) + "\n")


def record_of(out: Path) -> Record:
    """What the rows of a folder say. A part that is called again begins anew with its row about the machine."""
    found: Record = {}
    file = out / ROWS
    for line in file.read_text().splitlines() if file.exists() else ():
        row = json.loads(line)
        name = row.pop("part")
        if "machine" in row or name not in found:
            found[name] = {"state": "begun", "reason": "", "seconds": 0.0, "machine": {}, "rows": []}
        if row.keys() <= {*ABOUT}:
            found[name] |= row
        else:
            found[name]["rows"].append(row)
    return found


def write_record(out: Path) -> None:
    partial = out / f"{RECORD}.partial"
    partial.write_text(json.dumps(record_of(out), indent=1) + "\n")
    partial.replace(out / RECORD)


def merged(records: Iterable[Mapping[str, Any]]) -> Record:
    """Of each part the last record that has rows of it, or else the last that says why there are none."""
    found: Record = {}
    for record in records:
        for name, part in record.items():
            if part["rows"] or not found.get(name, {}).get("rows"):
                found[name] = part
    return {name: found[name] for name in PARTS if name in found}
