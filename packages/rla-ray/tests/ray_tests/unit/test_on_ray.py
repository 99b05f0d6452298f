"""What becomes of an attempt that ended: another one, an error that the user can mend, or a defect."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path

import pytest
from rla_ray.crew import Crew
from rla_ray.training.on_ray import Ended, attempt_verdict, wait_until_unlocked
from torch import OutOfMemoryError

from rla.errors import UserError

ray = pytest.importorskip("ray")
CREW = Crew(workers=2, cpus=1, gpus=0)


def ended_by(*failures: BaseException) -> BaseException:
    from ray.train import WorkerGroupError
    from ray.train.v2._internal.exceptions import UserExceptionWithTraceback

    raised = {rank: UserExceptionWithTraceback(failure, "traceback") for rank, failure in enumerate(failures)}
    return attempt_verdict(WorkerGroupError("they failed", raised), CREW)  # type: ignore[arg-type]


def test_a_lost_worker_is_worth_another_attempt() -> None:
    from ray.exceptions import ActorDiedError

    for failures in ([ActorDiedError()], [RuntimeError("[gloo] Connection closed by peer")]):
        found = ended_by(*failures)
        assert isinstance(found, Ended) and found.lost


def test_what_every_attempt_would_meet_ends_the_stage() -> None:
    found = ended_by(RuntimeError("Connection closed by peer"), UserError("rows: damaged; make them again"))
    assert isinstance(found, UserError) and str(found) == "rows: damaged; make them again"
    found = ended_by(RuntimeError("Connection closed by peer"), OutOfMemoryError("CUDA out of memory"))
    assert isinstance(found, UserError) and "2 workers of 1 CPU each do not hold the training" in str(found)
    found = ended_by(KeyError("a defect"))
    assert not isinstance(found, UserError | Ended)


def test_workers_that_do_not_start_are_counted_again() -> None:
    from ray.train import ControllerError
    from ray.train.v2._internal.exceptions import WorkerGroupStartupTimeoutError

    found = attempt_verdict(ControllerError(WorkerGroupStartupTimeoutError(2)), CREW)
    assert isinstance(found, Ended) and not found.lost
    found = attempt_verdict(ControllerError(ModuleNotFoundError("No module named 'rla'")), CREW)
    assert isinstance(found, UserError) and "No module named 'rla'" in str(found)


def test_an_output_is_waited_for_until_a_lost_worker_lets_go_of_it(tmp_path: Path) -> None:
    wait_until_unlocked(tmp_path / "lock", seconds=60)  # nobody was here
    lock = (tmp_path / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    threading.Timer(0.5, lock.close).start()
    began = time.monotonic()
    wait_until_unlocked(tmp_path / "lock", seconds=60)
    assert 0.4 < time.monotonic() - began < 30
