"""Two stages with different weights on one cluster: each gets engines while the other works."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path

from ray_tests.cluster.conftest import Nodes, Rla, on_ray
from ray_tests.cluster.test_shards import DEADLINE, begun, ended, started
from rla.store.reading import read_rows
from tests.integration.pipelines import until
from tests.integration.test_slices import close

# Six groups, of which the first is judged long before the last is played.
VALUES = ("rollout.tasks_per_iteration=6", "rollout.rollouts_per_task=96", "judge.votes=1", "train_rm.enabled=false")
MANY = tuple(word for value in VALUES for word in ("--set", value))


def test_a_rollout_and_a_judge_share_the_engines_of_one_cluster(rla: Rla, tmp_path: Path, nodes: Nodes) -> None:
    begun(rla, "--set", "generator.backend=transformers", "--set", "generator.max_sequences=8", *MANY)
    options = [*MANY, *on_ray(nodes, "transformers", "max_sequences=8", "own.replicas=2")]
    shutil.copytree(tmp_path / "r", tmp_path / "judged", ignore=shutil.ignore_patterns("scores", "timings"))
    rla("make-tasks", "--run", "played")
    rla("init-model", "--run", "played")
    warm = ("--model", "played/init/policy", "--set", "generator.context=512", *options[len(MANY) :])
    rla("engines", "start", *warm)  # which takes as long as the rollout
    playing = started(tmp_path, "rollout", "--run", "played", "--set", "rollout.concurrency=1", *options)
    judging = started(tmp_path, "score-steps", "--run", "judged", *options)
    scores = tmp_path / "judged/1/scores"
    until(lambda: any(scores.glob("part-*.parquet")) or judging.poll() is not None, seconds=DEADLINE)
    assert playing.poll() is None
    ended(playing)
    ended(judging)
    for run, stage, name in (("played", "rollout", "trajectories"), ("judged", "score-steps", "scores")):
        alone, shared = (read_rows(tmp_path / folder / "1" / name, name) for folder in ("r", run))
        assert len(alone) > 15 and shared == close(alone)
        (call,) = json.loads((tmp_path / run / f"timings/1-{stage}.json").read_text())["calls"]
        assert [one["host"] for one in call["devices"]] == [platform.node()]
        assert all(start < end for start, end in call["devices"][0]["spans"])
