"""`kill -9` at 20 random moments of a full run: the same command goes on, and nothing is lost, doubled or different."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.pipelines import contents, environment, make_pipeline, run

KILLS = 20
# What `make run` calls: the plan also mends a lock file that DVC was writing when it was killed.
RUN = ["sh", "-c", "rla plan --iterations 2 --run runs/t && exec dvc repro"]


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    """A pre-fork server, so that stages start in a moment and kills fall into their work."""
    place = tmp_path / "s"
    place.mkdir(mode=0o700)
    run(["rla", "prefork", "start", "--socket", str(place / "socket")], tmp_path)
    yield place / "socket"
    run(["rla", "prefork", "stop", "--socket", str(place / "socket")], tmp_path)


def killed_after(seconds: float, folder: Path, socket: Path) -> bool:
    """Start the run and kill its whole process group after `seconds`; False where it was done before."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            RUN,
            cwd=folder,
            env=environment(socket),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
    assert process.returncode == 0, (folder / "log").read_text()
    return False


@pytest.mark.slow
def test_a_run_that_is_killed_twenty_times_equals_an_undisturbed_one(tmp_path: Path, socket: Path) -> None:
    calm = make_pipeline(tmp_path / "calm", iterations=2)
    started = time.monotonic()
    run(RUN, calm, socket)
    whole = time.monotonic() - started

    stormy = make_pipeline(tmp_path / "stormy", iterations=2)
    moments = random.Random(20)
    kills = 0
    while kills < KILLS:
        if not killed_after(moments.uniform(0.5, max(2.0, whole / 5)), stormy, socket):
            # The run came to its end before 20 kills: the rest fall on a fresh one.
            assert contents(stormy / "runs/t") == contents(calm / "runs/t")
            stormy = make_pipeline(tmp_path / f"stormy-{kills}", iterations=2)
            continue
        kills += 1
    run(RUN, stormy, socket)
    assert contents(stormy / "runs/t") == contents(calm / "runs/t")
    assert len(contents(calm / "runs/t")) > 40
