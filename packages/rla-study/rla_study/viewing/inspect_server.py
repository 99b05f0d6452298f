"""Inspect's own viewer on a folder of logs, as a process that ends with the call, while the run goes on."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rla.errors import UserError
from rla.processes import end_with_parent

HOST = "127.0.0.1"
STARTS = 60.0  # seconds that the viewer has to answer
INTERVAL = 5.0  # seconds between two checks of the run
ENDS = 10.0  # seconds that the viewer has to end
SIGNAL = "inspect_ai/view/last-eval-result"  # below XDG_DATA_HOME: open pages watch the modification time of this file


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectViewer:
    """A running viewer. `data`: a folder of its own for Inspect's data besides the logs."""

    process: subprocess.Popen[bytes]
    data: Path

    def refresh(self, log: Path) -> None:
        """Make open pages reload, because a log is new."""
        path = self.data / SIGNAL
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"location": str(log.resolve())}))


@contextmanager
def viewer(folder: Path, port: int) -> Iterator[InspectViewer]:
    """Serve the logs of `folder` on loopback until the block ends. Raises UserError if the viewer does not start.

    Inspect records the process ids of its servers in the user's data folder and ends a server on the same port. So this
    one gets a data folder of its own, and a port in use is refused.
    """
    refuse_taken(port)
    command = [sys.executable, "-m", "inspect_ai", "view", "start", "--log-dir", str(folder.resolve())]
    command += ["--host", HOST, "--port", str(port)]
    with tempfile.TemporaryDirectory() as own:
        log = Path(own) / "stderr"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("INSPECT_")}
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command,
                cwd=own,
                env=kept | {"XDG_DATA_HOME": own},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                preexec_fn=end_with_parent,
            )
        try:
            _wait_until_answered(process, port, log)
            yield InspectViewer(process=process, data=Path(own))
        finally:
            process.terminate()
            try:
                process.wait(ENDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def refuse_taken(port: int) -> None:
    """Raises UserError if the port is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror or error}; give another one") from None


def _wait_until_answered(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Raises UserError with the last line of `log` if the process ends, or after STARTS seconds without an answer."""
    end = time.monotonic() + STARTS
    while process.poll() is None and time.monotonic() < end:
        try:
            with socket.create_connection((HOST, port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    said = log.read_text(errors="replace").strip()
    reason = said.splitlines()[-1] if said else f"no answer within {STARTS:.0f} s"
    raise UserError(f"the viewer did not start on port {port}: {reason}")


def follow(server: InspectViewer, look: Callable[[], Path | None], *, interval: float = INTERVAL) -> None:
    """Call `look`, which returns a new log, every `interval` seconds. Raises UserError if the viewer ends."""
    while True:
        try:
            server.process.wait(interval)
        except subprocess.TimeoutExpired:
            new = look()
            if new is not None:
                server.refresh(new)
        else:
            raise UserError(f"the viewer ended with status {server.process.returncode}")
