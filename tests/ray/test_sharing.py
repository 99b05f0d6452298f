"""Two stages with different weights on one cluster: each gets engines while the other works."""

from __future__ import annotations

import json
import platform
from pathlib import Path

from rla.store.reading import read_rows
from tests.integration.pipelines import until
from tests.integration.test_slices import close
from tests.ray.conftest import Nodes, Rla, on_ray
from tests.ray.test_shards import DEADLINE, begun, ended, started

# Six groups, of which the first is judged long before the last is played.
VALUES = ("rollout.tasks_per_iteration=6", "rollout.rollouts_per_task=96", "judge.votes=1")
MANY = tuple(word for value in VALUES for word in ("--set", value))


def test_judging_follows_a_rollout_on_the_engines_of_the_same_cluster(rla: Rla, tmp_path: Path, nodes: Nodes) -> None:
    begun(rla, "--set", "generator.backend=transformers", "--set", "generator.max_sequences=8", *MANY)
    options = [*MANY, *on_ray(nodes, "transformers", "max_sequences=8", "own.replicas=2")]
    rla("make-tasks", "--run", "both")
    rla("init-model", "--run", "both")
    warm = ("--model", "both/init/policy", "--set", "generator.context=512", *options[len(MANY) :])
    rla("engines", "start", *warm)  # which takes as long as the rollout
    playing = started(tmp_path, "rollout", "--run", "both", "--set", "rollout.concurrency=1", *options)
    judging = started(tmp_path, "score-steps", "--run", "both", "--follow", *options)
    ahead = tmp_path / "both/1/.scores.ahead"
    until(lambda: any(ahead.glob("part-*.parquet")) or judging.poll() is not None, seconds=DEADLINE)
    assert playing.poll() is None  # it was judged while the rollout plays
    ended(playing)
    ended(judging)
    for name in ("trajectories", "scores"):
        alone, both = (read_rows(tmp_path / run / "1" / name, name) for run in ("r", "both"))
        assert len(alone) > 15 and both == close(alone)
    for stage in ("rollout", "score-steps"):
        (call,) = json.loads((tmp_path / f"both/timings/1-{stage}.json").read_text())["calls"]
        assert [one["host"] for one in call["devices"]] == [platform.node()]
        assert all(start < end for start, end in call["devices"][0]["spans"])
