"""A job array of slices on the tests' own Slurm: what is submitted, which slices failed and why."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rla.errors import UserError
from rla.processes import slurm
from rla.processes.executors import SliceFailure, refuse_failures
from rla.processes.slurm import SlurmArray, array_indices
from rla.store.slices import Slice, slices
from tests.unit.processes import fake_slurm

WHOLE_LINE = 'for last; do :; done; printf "%s\\n" "$*"; '  # in place of python: `-m rla <arguments> --slice i/n`


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The state of a cluster whose programs are first on PATH."""
    programs, state = fake_slurm.install(tmp_path / "bin"), tmp_path / "cluster"
    state.mkdir()
    monkeypatch.setenv("FAKE_SLURM", str(state))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "LATE", 0.2)
    return state


def array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, **more: object) -> SlurmArray:
    """An array whose tasks run the shell commands `stage`; `$last` is the slice."""
    program = tmp_path / "an interpreter"
    program.write_text(f"#!/bin/sh\n{WHOLE_LINE}{stage}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    folder = tmp_path / "it's $HOME; 100%"
    folder.mkdir()
    return SlurmArray(**{"folder": folder, "name": "rla-rollout-1", **more})  # type: ignore[arg-type]


def test_each_task_calls_the_same_stage_with_its_slice(
    tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    stage = 'echo "$RLA_FOUND ${SLURM_GPUS-none} ${CUDA_VISIBLE_DEVICES-none} $(pwd)"'
    monkeypatch.chdir(tmp_path)
    for name in ("SLURM_GPUS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "of the caller")
    made = array(
        tmp_path, monkeypatch, stage, options=["--partition=gpu"], more={"RLA_FOUND": "a 'b'"}, tell=told.append
    )
    assert made.run(["rollout", "--run", "$(touch no); r"], slices(3)) == []
    for index in (1, 2, 3):
        said = (made.folder / f"{index}.log").read_text().splitlines()
        assert said == [f"-m rla rollout --run $(touch no); r --slice {index}/3", f"a 'b' none none {tmp_path}"]
    assert told == [f"job 101: slices 1-3 of 3; logs: {made.folder}/"]
    given = (cluster / "101/arguments").read_text().splitlines()
    assert {"--partition=gpu", "--array=1-3", "--wait", "--parsable", "--job-name=rla-rollout-1"} < set(given)


def test_failed_slices_are_named_with_their_last_error_and_log(
    tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = array(tmp_path, monkeypatch, 'case $last in 2/9) echo "error: no room" >&2; exit 2;; 7/9) exit 1;; esac')
    failures = made.run(["rollout"], [Slice(index=index, count=9) for index in (2, 3, 7)])
    assert [(str(one.part), one.reason, one.log) for one in failures] == [
        ("2/9", "exit status 2: error: no room", made.folder / "2.log"),
        ("7/9", "exit status 1", made.folder / "7.log"),
    ]
    assert "--array=2-3,7" in (cluster / "101/arguments").read_text()


def test_a_time_limit_asks_for_more_time(tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cluster / "seconds").write_text("0.5")
    made = array(tmp_path, monkeypatch, "case $last in 2/2) sleep 60;; esac")
    (failure,) = made.run(["rollout"], slices(2))  # sbatch ends with 0
    assert (failure.part.index, failure.reason) == (2, "its time limit ended it")
    assert "--time=" in failure.remedy


def test_a_cancelled_array(tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = array(tmp_path, monkeypatch, "scancel 101; sleep 60")
    first, second, third = made.run(["rollout"], slices(3))  # two run at once
    assert first.reason == second.reason == "cancelled"
    assert (third.reason, third.log) == ("cancelled before it began, or lost", made.folder)


def test_a_refused_job_and_no_slurm(tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = array(tmp_path, monkeypatch, "true")
    (cluster / "refuse").write_text("Invalid partition name specified")
    with pytest.raises(
        UserError, match=r"sbatch refused the job: sbatch: error: .* Invalid partition .*; mend launch\."
    ):
        made.run(["rollout"], slices(2))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match=r"sbatch: no such program here.*launch\.stage=local"):
        made.run(["rollout"], slices(2))


def test_what_a_lost_machine_left_in_the_queue_is_cancelled_first(
    tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = cluster / "7"
    left.mkdir()
    (left / "name").write_text("rla-rollout-1")
    made = array(tmp_path, monkeypatch, "true")
    assert made.run(["rollout"], slices(1)) == [] and (left / "cancelled").exists()
    assert not (cluster / "102/cancelled").exists()


CALL = """
import sys
from pathlib import Path
from rla.processes.slurm import SlurmArray
from rla.store.slices import slices
sys.executable = sys.argv[1]
SlurmArray(folder=Path(sys.argv[2]), name="n").run(["rollout"], slices(2))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_array_ends_with_the_call(
    number: int, tmp_path: Path, cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = sys.executable
    made = array(tmp_path, monkeypatch, "echo $$ > $SLURM_ARRAY_TASK_ID.pid; exec sleep 300")
    call = [python, "-c", CALL, sys.executable, str(made.folder)]
    process = subprocess.Popen(call, cwd=tmp_path, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    process.send_signal(number)
    process.wait(60)
    wait_for((cluster / "101/ended").exists)
    for path in tmp_path.glob("*.pid"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.read_text()), 0)


def wait_for(condition: object) -> None:
    end = time.monotonic() + 90
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


def test_numbers_as_sbatch_reads_them() -> None:
    assert array_indices([Slice(index=index, count=9) for index in (7, 1, 2, 3, 9)]) == "1-3,7,9"


def test_an_error_names_some_failures_and_each_remedy_once() -> None:
    refuse_failures("rollout", [], total=3, runner="slices")
    failures = [SliceFailure(part=part, reason="exit status 2", log=Path("x.log")) for part in slices(9)]
    failures.append(SliceFailure(part=Slice(index=1, count=1), reason="preempted", remedy="wait for the cluster"))
    expected = r"rollout: 10 of 12 slices failed, slices 1/9 \(exit status 2; x\.log\), .*8/9 \(.*\) and 2 more; "
    with pytest.raises(UserError, match=expected + "mend the cause, wait for the cluster and call the same command"):
        refuse_failures("rollout", failures, total=12, runner="slices")
