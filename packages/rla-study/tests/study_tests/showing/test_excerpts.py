"""Excerpts of the episodes that were played."""

from __future__ import annotations

from pathlib import Path

import pytest
from rla_study.showing import drawing
from rla_study.showing.drawing import judged_steps
from rla_study.showing.episodes import Played, chosen_excerpts

from rla.report.collect import collect
from rla.store.manifest import run_config_path
from rla.store.shards import Origin, write_shard
from tests.browser.hostile_run import hostile_run
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


def titles(run: Path) -> list[str]:
    return [section.title for section in judged_steps(collect(run))]


def test_the_page_of_a_run_shows_steps_of_its_last_judged_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst steps need an environment that labels steps, and both need the environment's name."""
    run = hostile_run(tmp_path / "run", text="x")
    write_shard(run / "2/trajectories", "trajectories", [trajectory().row()], Origin(config="c", inputs={}, seed=0))
    assert titles(run) == ["Worst judged steps of iteration 1", "Most disputed steps of iteration 1"]
    with monkeypatch.context() as patched:
        patched.setattr(drawing, "environment", lambda name: object())
        assert titles(run) == ["Most disputed steps of iteration 1"]
    run_config_path(run).unlink()
    assert titles(run) == []
    assert titles(tmp_path / "new") == []
