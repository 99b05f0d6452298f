"""Files that are either whole or absent, whatever instant the process dies at."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def write_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Call `write(temporary)` then rename it to `path`, both flushed to disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    write(temporary)
    with temporary.open("rb") as handle:
        os.fsync(handle.fileno())
    temporary.replace(path)


def write_json(path: Path, data: Any) -> None:
    """`data` as indented JSON, atomically; keys keep their order."""
    write_text(path, json.dumps(data, indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """A text file, atomically."""

    def write(temporary: Path) -> None:
        temporary.write_text(text)

    write_atomic(path, write)
