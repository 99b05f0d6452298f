"""What a reader may find after a kill: the old shard, the new one, or an error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.attack.kills import mixture
from tests.attack.small_run import BY_NAME, World, digests
from tests.unit.store.shard_damage import OTHER, OURS, THIRD, flip, grow

CASE = BY_NAME["rollout-again"]


def test_neither_the_old_shard_nor_the_new_one_is_reported(tmp_path: Path) -> None:
    world, here = World(tmp_path / "world", 0), tmp_path / "here"
    grow(world.before(CASE) / "r/1/pool", OTHER)
    grow(tmp_path / "new/r/1/pool", OURS)
    (tmp_path / "world/after-rollout-again.json").write_text(json.dumps(digests(tmp_path / "new")))
    for folder in (world.before(CASE), tmp_path / "new"):
        shutil.copytree(folder, here)
        assert mixture(world, CASE, here) is None
        shutil.rmtree(here)
    grow(here / "r/1/pool", THIRD)
    assert mixture(world, CASE, here) == "read as whole, but neither the old one nor the new one: r/1/pool"
    flip(here / "r/1/pool/part-00001.parquet", -20)
    assert mixture(world, CASE, here) is None  # a reader refuses it


def test_metrics_cut_in_half_by_a_kill_are_compared_as_they_are(tmp_path: Path) -> None:
    metrics = tmp_path / "r/2/.rm.tmp/metrics.jsonl"
    metrics.parent.mkdir(parents=True)

    def seen(loss: float, seconds: float) -> dict[str, str]:
        metrics.write_text(f'{{"loss": 1.0, "seconds": {seconds}}}\n{{"loss": {loss}, "sec')
        return digests(tmp_path)

    assert seen(0.5, 2.0) == seen(0.5, 3.0) != seen(0.4, 2.0)
