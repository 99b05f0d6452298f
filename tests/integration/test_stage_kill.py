"""`kill -9` of one stage at 20 random moments: in the end no episode is lost, doubled or different."""

import random
import time
from pathlib import Path

import pytest

from tests.integration.pipelines import PARAMS, contents, forked, forked_until

KILLS = 20
STAGES = {"rollout": "trajectories", "score-steps": "scores"}
LARGER = PARAMS.replace("train_scenes: 3", "train_scenes: 24").replace(
    "rollout: {tasks_per_iteration: 4, rollouts_per_task: 4}",
    "rollout: {tasks_per_iteration: 40, rollouts_per_task: 8, concurrency: 8}",
)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_is_killed_twenty_times_equals_an_undisturbed_one(stage: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(LARGER)
    forked(["rla", "rollout", "--run", "r"], tmp_path)
    started = time.monotonic()
    forked(["rla", stage, "--run", "r", "--out", "calm"], tmp_path)
    whole = time.monotonic() - started
    calm = contents(tmp_path / "calm")

    moments = random.Random(4)
    folders, within = [tmp_path / "stormy-0"], 0
    for _ in range(KILLS):
        call = ["rla", stage, "--run", "r", "--out", str(folders[-1])]
        while not forked_until(moments.uniform(0.1, 0.9) * whole, call, tmp_path):
            folders.append(tmp_path / f"stormy-{len(folders)}")  # that one was done: the rest fall on a fresh one
            call[-1] = str(folders[-1])
        within += 0 < len(list(folders[-1].glob("part-*.parquet"))) < len(calm) - 1
    forked(call, tmp_path)
    assert len(calm) == 41 and all(contents(folder) == calm for folder in folders)
    assert within >= KILLS // 4  # kills that fell into the work, not into the start
