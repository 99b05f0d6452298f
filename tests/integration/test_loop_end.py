"""What `rla run` starts ends with it. The processes of its runs are real, not forked from the server of the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from multiprocessing import forkserver
from pathlib import Path

import pytest

from rla.pipeline.run import FORKABLE, PRELOADED, start_server
from tests.integration.pipelines import environment, forked, until
from tests.integration.test_loop import RUN, folder, with_stage

__all__ = ["folder"]

# Importing all that a run imports takes ten seconds; one slow case does.
UNPREPARED = """
import sys
from rla.pipeline import run
run.PRELOADED = ("rla.cli.app",)
from rla.__main__ import main
main()
"""


def working_below(folder: Path) -> list[str]:
    """The processes that work in the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                found.append(process.name)
        except OSError:
            pass  # it has ended
    return found


@pytest.mark.parametrize(
    ("number", "start"),
    [
        *((number, ("-c", UNPREPARED)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)),
        pytest.param(signal.SIGINT, ("-m", "rla"), marks=pytest.mark.slow),
    ],
)
def test_what_runs_ends_with_the_run(folder: Path, number: signal.Signals, start: tuple[str, str]) -> None:
    # The shell needs longer than the 0.25 s that `subprocess.run` gives its child after an interrupt.
    with_stage(folder, "trap 'sleep 1; echo put down > put-down; exit 1' INT; echo x > begun; sleep 1000 & wait")
    process = subprocess.Popen(
        [sys.executable, *start, *RUN[1:]],
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until((folder / "begun").exists, seconds=120)
    process.send_signal(number)
    assert process.wait(60) == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    until(lambda: not working_below(folder), seconds=20)
    assert (folder / "put-down").exists() == (number != signal.SIGKILL)


@pytest.mark.slow
def test_the_process_that_stages_are_forked_from_has_one_thread(tmp_path: Path) -> None:
    """After all imports: a second thread could hold a lock that a forked process then never gets."""
    assert not forked(["rla", "--version"], tmp_path)
    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    assert len(os.listdir(f"/proc/{server}/task")) == 1


def test_that_process_has_the_imports_and_variables_of_the_one_whose_threads_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Importing all that again takes eight seconds; tests/forking.py does it in any case, and ends if a thread runs."""
    variables = dict[str, str]()
    monkeypatch.setattr(forkserver, "ensure_running", lambda: variables.update(os.environ))
    start_server()
    assert FORKABLE.items() <= variables.items()
    assert forkserver._forkserver._preload_modules == list(PRELOADED)  # type: ignore[attr-defined]
