"""What a reader may find after a kill: the old shard, the new one, or an error."""

from __future__ import annotations

import json
import shutil
from json import JSONDecodeError
from pathlib import Path

import pytest

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


def test_metrics_that_a_kill_cut_in_half_are_compared_as_they_are(tmp_path: Path) -> None:
    def seen(folder: str, loss: float) -> dict[str, str]:
        metrics = tmp_path / str(loss) / folder / "metrics.jsonl"
        metrics.parent.mkdir(parents=True)
        metrics.write_text(f'{{"loss": 1.0, "seconds": 2.0}}\n{{"loss": {loss}, "sec')
        return digests(tmp_path / str(loss))

    assert seen("r/2/.rm.tmp", 0.4).keys() == seen("r/2/.rm.tmp", 0.5).keys()
    assert seen("r/3/.rm.tmp", 0.4) != seen("r/3/.rm.tmp", 0.5)
    with pytest.raises(JSONDecodeError):  # in a folder that counts as complete
        seen("r/2/rm", 0.4)
