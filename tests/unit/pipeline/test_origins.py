"""What was made from an input that has been replaced since is not read as if it belonged to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.errors import UserError
from rla.pipeline.origins import refuse_stale
from rla.store.digests import digest
from rla.store.shards import Origin, write_shard
from tests.unit.builders import score, trajectory


def shards(folder: Path, *, seed: int) -> tuple[Path, Path]:
    """Trajectories of that seed, and scores of those that lie there now."""
    played = folder / "trajectories"
    write_shard(played, "trajectories", [trajectory(seed=seed).row()], Origin(config="c", inputs={}, seed=seed))
    made_from = Origin(config="c", inputs={"0": digest(played)}, seed=0)
    write_shard(folder / "scores", "scores", [score().row()], made_from)
    return played, folder / "scores"


def test_a_shard_made_from_what_has_been_replaced_is_refused(tmp_path: Path) -> None:
    played, scores = shards(tmp_path, seed=1)
    refuse_stale(scores, source=played)
    other = Origin(config="c", inputs={}, seed=2)
    write_shard(played, "trajectories", [trajectory(seed=2).row()], other, overwrite=True)
    with pytest.raises(UserError, match=r"scores: not made from .*trajectories as it is now; call the stage"):
        refuse_stale(scores, source=played)


def test_a_shard_that_names_no_inputs_is_somebodys_own(tmp_path: Path) -> None:
    played, _ = shards(tmp_path, seed=1)
    write_shard(tmp_path / "own", "scores", [score().row()], Origin(config="", inputs={}, seed=0))
    refuse_stale(tmp_path / "own", source=played)
