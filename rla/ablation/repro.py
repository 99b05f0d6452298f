"""`dvc repro` that ends, with all that it has started, when the process that started it does.

`python -m rla.ablation.repro` leads the process group, which it kills when its standard input, a pipe, closes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from runpy import run_module

from rla.processes.workers import WATCH, end_with_stdin


@contextmanager
def lifeline() -> Iterator[tuple[int, ExitStack]]:
    """(stdin, cut): calls with that standard input end where the block of `cut` does, or with this process, however it
    dies. Until this block ends `stdin` can be handed on: a call that begins after the cut ends at once.
    """
    reading, writing = os.pipe()
    cut = ExitStack()
    cut.callback(os.close, writing)
    try:
        yield reading, cut
    finally:
        cut.close()
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
