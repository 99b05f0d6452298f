"""How a process ends: a rank of several runs its exit functions, but never takes its interpreter down."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rla.__main__ as entry
import rla.cli.app
import rla.processes
from rla.processes import LAUNCHED

LEAVING = """
import atexit, sys, threading, time
from rla.processes import leave

class Kept:
    def __del__(self):
        print("taken down")

def late():
    time.sleep(0.2)
    print("thread")

kept = Kept()
atexit.register(print, "exit function")
threading.Thread(target=late).start()
print("said")
LEAVE(3)
"""


@pytest.mark.parametrize(("how", "last"), [("leave", ""), ("sys.exit", "taken down\n")])
def test_leaving_waits_for_threads_and_calls_exit_functions_without_the_teardown(how: str, last: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVING.replace("LEAVE", how)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "said\nthread\nexit function\n" + last, "")


def failing(arguments: list[str]) -> int:
    raise RuntimeError("a defect")


@pytest.mark.parametrize(
    ("variable", "command", "status"),
    [
        ("WORLD_SIZE", lambda arguments: 2, "left with 2"),
        (LAUNCHED, lambda arguments: 0, "left with 0"),
        ("WORLD_SIZE", failing, "left with 1"),
        (None, lambda arguments: 2, 2),
    ],
)
def test_a_launched_process_leaves_with_the_status_of_its_command(
    variable: str | None,
    command: Callable[[list[str]], int],
    status: str | int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def leave(status: int) -> None:
        raise SystemExit(f"left with {status}")

    monkeypatch.setenv(*entry.SPIN)
    monkeypatch.delenv(LAUNCHED, raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if variable is not None:
        monkeypatch.setenv(variable, "2")
    monkeypatch.setattr(entry, "end_with_parent", lambda: None)
    monkeypatch.setattr(rla.processes, "leave", leave)
    monkeypatch.setattr(rla.cli.app, "run", command)
    with pytest.raises(SystemExit) as end:
        entry.main()
    assert end.value.code == status
    assert ("RuntimeError: a defect" in capsys.readouterr().err) == (command is failing)
