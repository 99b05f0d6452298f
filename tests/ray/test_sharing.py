"""Two stages with different weights on one cluster: each gets engines while the other works."""

from __future__ import annotations

from pathlib import Path

from rla.store.reading import read_manifest
from tests.integration.pipelines import contents, until
from tests.ray.conftest import Nodes, Rla, on_ray
from tests.ray.test_shards import DEADLINE, begun, ended, started


def test_judging_follows_a_rollout_on_the_engines_of_the_same_cluster(rla: Rla, tmp_path: Path, nodes: Nodes) -> None:
    own = ("--set", "generator.backend=transformers", "--set", "generator.max_sequences=8")
    begun(rla, *own)
    options = on_ray(nodes, "transformers", "max_sequences=8", "ray.replicas=2")
    words = ("rollout", "--run", "both", "--set", "rollout.concurrency=1", *options)
    rla("make-tasks", "--run", "both")
    rla("init-model", "--run", "both")
    playing = started(tmp_path, *words)
    parts = tmp_path / "both/1/trajectories"
    until(lambda: any(parts.glob("part-*.parquet")) or playing.poll() is not None, seconds=DEADLINE)
    judging = started(tmp_path, "score-steps", "--run", "both", "--follow", *options)
    ahead = tmp_path / "both/1/.scores.ahead"
    until(lambda: any(ahead.glob("part-*.parquet")) or judging.poll() is not None, seconds=DEADLINE)
    assert playing.poll() is None  # it was judged while the rollout plays
    ended(playing)
    ended(judging)
    counts = [read_manifest(tmp_path / run / "1/scores", "scores")["counts"] for run in ("r", "both")]
    assert counts[0] == counts[1]
    assert len(contents(tmp_path / "both/1/scores")) == len(contents(tmp_path / "r/1/scores"))
