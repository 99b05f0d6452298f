"""Excerpts of the episodes that were played."""

from __future__ import annotations

from pathlib import Path

from rla.report.episodes import Played, chosen_excerpts
from rla.store.shards import Origin, write_shard
from tests.unit.builders import configured, score, trajectory


def test_judged_rows_of_programs_that_nobody_played_are_left_out(tmp_path: Path) -> None:
    """The judge of coding also tests reference programs: their rows have votes, and no episode."""
    origin = Origin(config="c", inputs={}, seed=0)
    write_shard(tmp_path / "trajectories", "trajectories", [trajectory("a").row()], origin)
    rows = [score(name, votes=(1, -1)).row() for name in ("a", "reference-1")]
    write_shard(tmp_path / "scores", "scores", rows, origin)
    nothing = tmp_path / "nothing"
    played = Played(
        trajectories=tmp_path / "trajectories",
        scores=tmp_path / "scores",
        policy_rewards=nothing,
        rm_rewards=nothing,
        pools=(),
    )
    found = chosen_excerpts(played, configured(), "disputed", 5)
    assert [one.episode.trajectory_id for one in found] == ["a"]
