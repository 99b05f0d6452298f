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
    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    write_atomic(path, lambda temporary: temporary.write_text(text) and None)
