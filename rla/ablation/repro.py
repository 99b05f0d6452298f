"""`dvc repro` that ends, with all that it has started, when the process that started it does.

`python -m rla.ablation.repro` leads the process group, which it kills when its standard input, a pipe, closes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from runpy import run_module
from threading import Lock

from rla.workers import WATCH, end_with_stdin


class Repros:
    """The calls that run. They end with this process, however it dies, or by `end`, after which none begins."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = {**environment, WATCH: "1"}
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False
        self._lock = Lock()

    def run(self, folder: Path, log: Path) -> int:
        """The exit status of `dvc repro` in `folder`, whose output goes to the end of `log`."""
        with log.open("ab") as out:
            with self._lock:
                if self._ended:
                    return 1
                process = subprocess.Popen(
                    [sys.executable, "-m", "rla.ablation.repro"],
                    cwd=folder,
                    env=self._environment,
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
                self._running.add(process)
            status = process.wait()
        with self._lock:
            self._running.remove(process)
            close(process)
        return status

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for process in self._running:
                close(process)


def close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


if __name__ == "__main__":
    end_with_stdin()
    sys.argv = ["dvc", "repro"]
    run_module("dvc", run_name="__main__")
