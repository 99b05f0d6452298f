"""`kill -9` at 20 random moments of a full run: the same command goes on, and nothing is lost, doubled or different."""

import random
import time
from pathlib import Path

import pytest

from tests.integration.pipelines import contents, killed_after, make_pipeline, run

KILLS = 20
RUN = ["rla", "run", "--iterations", "2", "--run", "runs/t"]


@pytest.mark.slow
def test_a_run_that_is_killed_twenty_times_equals_an_undisturbed_one(tmp_path: Path) -> None:
    calm = make_pipeline(tmp_path / "calm", iterations=2)
    started = time.monotonic()
    run(RUN, calm)
    whole = time.monotonic() - started

    stormy = make_pipeline(tmp_path / "stormy", iterations=2)
    moments = random.Random(20)
    kills = 0
    while kills < KILLS:
        if not killed_after(moments.uniform(0.5, max(2.0, whole / 5)), RUN, stormy):
            # The run came to its end before 20 kills: the rest fall on a fresh one.
            assert contents(stormy / "runs/t") == contents(calm / "runs/t")
            stormy = make_pipeline(tmp_path / f"stormy-{kills}", iterations=2)
            continue
        kills += 1
    run(RUN, stormy)
    assert contents(stormy / "runs/t") == contents(calm / "runs/t")
    assert len(contents(calm / "runs/t")) > 40
