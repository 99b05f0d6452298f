"""`python -m tests.integration.gated_rollout GATES rollout ...`: the command line, whose n-th new part of a shard waits
for the file `GATES/<n>`. So a test says when a slow episode ends. `GATES/pid` holds the id of the process.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from rla.cli.app import run
from rla.store.shards import ShardWriter


def main() -> int:
    gates, write, written = Path(sys.argv[1]), ShardWriter.write, 0

    def gated(writer: ShardWriter, index: int, rows: list[dict[str, Any]]) -> None:
        nonlocal written
        written += 1
        while not (gates / str(written)).exists():
            time.sleep(0.02)
        write(writer, index, rows)

    (gates / "pid").write_text(str(os.getpid()))
    ShardWriter.write = gated  # type: ignore[method-assign, assignment]
    return run(sys.argv[2:])


if __name__ == "__main__":
    raise SystemExit(main())
