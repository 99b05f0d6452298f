"""`dvc repro` that ends, with all that it has started, when the process that started it does.

`python -m rla.ablation.repro` leads the process group, which it kills when its standard input, a pipe, closes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from runpy import run_module

from rla.workers import WATCH, end_with_stdin


@contextmanager
def lifeline() -> Iterator[int]:
    """The standard input of calls that end where this block does, or with this process, however it dies."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(writing)
        os.close(reading)


def run_repro(folder: Path, environment: Mapping[str, str], log: Path, *, stdin: int) -> int:
    """The exit status of `dvc repro` in `folder`, whose output goes to the end of `log`. `stdin`: a lifeline."""
    with log.open("ab") as out:
        return subprocess.run(
            [sys.executable, "-m", "rla.ablation.repro"],
            cwd=folder,
            env={**environment, WATCH: "1"},
            stdin=stdin,
            stdout=out,
            stderr=out,
            start_new_session=True,
            check=False,
        ).returncode


if __name__ == "__main__":
    end_with_stdin()
    sys.argv = ["dvc", "repro"]
    run_module("dvc", run_name="__main__")
