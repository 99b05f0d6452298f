"""`dvc repro` that ends, with all that it has started, when the process that started it does.

`python -m rla.pipeline.repro` leads the process group, which it kills when its standard input, a pipe, closes.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from runpy import run_module
from tempfile import TemporaryDirectory

from rla.pipeline.ahead import BRIEF
from rla.processes.prefork.control import start_prefork, stop_prefork
from rla.processes.workers import WATCH, end_with_stdin

COMMAND = (sys.executable, "-P", "-m", "rla.pipeline.repro")
PATIENCE = 60.0  # seconds for a stage to put down its work after an interrupt


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
            COMMAND,
            cwd=folder,
            env={**environment, WATCH: "1"},
            stdin=stdin,
            stdout=out,
            stderr=out,
            start_new_session=True,
            check=False,
        ).returncode


def show_repro(environment: Mapping[str, str]) -> int:
    """The exit status of `dvc repro` here, which prints where this process does.

    It is no part of the terminal's group. An interrupt of this process is passed on once, to DVC and to the stage that
    runs, so that the stage can put down its work; then KeyboardInterrupt goes on.
    """
    process = subprocess.Popen(COMMAND, env={**environment, WATCH: "1"}, stdin=subprocess.PIPE, start_new_session=True)
    with process:  # its end closes the pipe
        try:
            return process.wait()
        except KeyboardInterrupt:
            interrupt_group(process)
            raise


def interrupt_group(process: subprocess.Popen[bytes]) -> None:
    """Let the group that `process` leads end by itself; its pipe ends what does not."""
    try:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(PATIENCE)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass


@contextmanager
def prefork_server() -> Iterator[dict[str, str]]:
    """The environment of calls that a server of this process's own takes; a caller's server is used where there is
    one.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # where `rla` of the stages is
    environment = os.environ | {"DVC_NO_ANALYTICS": "1", "PATH": path}
    if "RLA_PREFORK" in os.environ:
        yield environment
        return
    with TemporaryDirectory() as private:
        socket = Path(private) / "socket"
        start_prefork(socket, parent=os.getpid())
        try:
            yield environment | {"RLA_PREFORK": str(socket)}
        finally:
            stop_prefork(socket)


if __name__ == "__main__":
    end_with_stdin()
    if BRIEF in os.environ:
        from dvc.ui import ui

        logging.disable(logging.INFO)  # which stage begins and which file is written: errors and warnings stay
        ui.enable = lambda: None  # it would advise `dvc push` to everybody
    sys.argv = ["dvc", "repro"]
    run_module("dvc", run_name="__main__")
