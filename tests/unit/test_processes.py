"""How a process ends: a rank of several runs its exit functions, but never takes its interpreter down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rla.__main__ as entry
import rla.cli

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
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "said\nthread\nexit function\n" + last, "")


@pytest.mark.parametrize("launched", [True, False])
def test_a_launched_process_leaves_with_the_status_of_its_command(
    launched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(status: int) -> None:
        raise SystemExit(f"left with {status}")

    monkeypatch.delenv(entry.LAUNCHED, raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("RLA_PREFORK", raising=False)
    if launched:
        monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(entry, "end_with_parent", lambda: None)
    monkeypatch.setattr(entry, "leave", leave)
    monkeypatch.setattr(rla.cli, "run", lambda arguments: 2)
    with pytest.raises(SystemExit) as end:
        entry.main()
    assert end.value.code == ("left with 2" if launched else 2)
