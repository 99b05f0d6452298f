"""`rla env serve` in a process of its own, while a test plays."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.integration.pipelines import environment


@dataclass(slots=True)
class Serving:
    """Where it answers; `lines` is what it printed first, `last` what it printed at its end."""

    url: str
    lines: list[str]
    process: subprocess.Popen[str]
    last: str = ""

    def ended(self, number: signal.Signals) -> int:
        """Send a signal; the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            self.last, _ = self.process.communicate(timeout=30)
        return self.process.returncode


@contextmanager
def serving_env(folder: Path, *options: str, lines: int = 1, **variables: str) -> Iterator[Serving]:
    """The server, on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rla", "env", "serve", "--port", "0", *options],
        cwd=folder,
        env=environment() | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        first = [process.stdout.readline().strip() for _ in range(lines)]
        words = [word.rstrip(";") for word in first[0].split() if word.startswith("http://")]
        yield Serving(words[0] if words else "", first, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.stdout.close()
        process.wait()
