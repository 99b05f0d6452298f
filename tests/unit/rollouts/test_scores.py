"""What is judged is one trajectory shard, though its parts are read one after the other for hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.errors import UserError
from rla.rollouts.scores import played_tasks
from rla.store.shards import Origin, write_shard
from tests.unit.builders import trajectory


def played(folder: Path, config: str) -> None:
    origin = Origin(config=config, inputs={}, seed=0)
    write_shard(folder, "trajectories", [trajectory(config).row()], origin, overwrite=True)


def test_a_shard_that_is_replaced_while_it_is_judged_is_not_judged_further(tmp_path: Path) -> None:
    played(tmp_path / "x", "c1")
    (task,) = played_tasks(tmp_path / "x")
    assert [row["trajectory_id"] for row in task.rows()] == ["c1"]
    played(tmp_path / "x", "c2")
    with pytest.raises(UserError, match="if another call has replaced the shard meanwhile, call this one again"):
        task.rows()
