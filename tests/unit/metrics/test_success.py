"""Success on held-out tasks from a shard whose episodes can be counted by eye."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.errors import UserError
from rla.metrics.intervals import wilson
from rla.metrics.success import EvaluatedEpisode, held_out_metrics, success_metrics
from rla.rollouts.play import trajectory_counts
from rla.store.records import Trajectory
from rla.store.shards import Origin, ShardWriter
from tests.unit.builders import step, trajectory


def episode(name: str, stop: str, *, steps: int = 2, **changes: object) -> Trajectory:
    fields = {"task_id": name.split("/")[0], "stop_reason": stop, "outcome": 1 if stop == "won" else -1, **changes}
    return trajectory(name, steps=[step()] * steps, error="died" if stop == "env_error" else None, **fields)


def shard(folder: Path, *episodes: Trajectory) -> Path:
    writer = ShardWriter(folder, "trajectories", Origin(config="c", inputs={}, seed=0))
    for index, one in enumerate(episodes):
        writer.write(index, [one.row()])
    writer.finish(trajectory_counts(writer.parts()))
    return folder


def test_an_episode_that_the_environment_broke_is_counted_and_is_no_loss(tmp_path: Path) -> None:
    """a: won, won, broken. b: lost, broken after four steps. Of three episodes two were won."""
    found = held_out_metrics(
        shard(
            tmp_path,
            episode("a/0", "won"),
            episode("a/1", "won"),
            episode("a/2", "env_error", steps=0),
            episode("b/0", "max_steps", steps=5),
            episode("b/1", "env_error", steps=4, kind="other"),
        )
    )
    assert (found["episodes"], found["env_errors"], found["success"]) == (3, 2, 2 / 3)
    assert (found["mean_steps"], found["steps"]) == (3.0, 13)
    assert list(found["by_kind"]) == ["pick_and_place_simple"]  # of the other kind no episode counts


def test_a_kind_has_its_interval_its_steps_and_why_its_episodes_ended(tmp_path: Path) -> None:
    """Of kind x task a is won twice, task b never, once by the agent's end and once by max_steps: one independent trial
    of 1/2, as in the next test. Of kind y one task is won in three steps, and another broken.
    """
    found = held_out_metrics(
        shard(
            tmp_path,
            *(episode(f"a/{index}", "won", kind="x", steps=1) for index in range(2)),
            episode("b/0", "ended", kind="x", steps=3),
            episode("b/1", "max_steps", kind="x", steps=5),
            episode("c/0", "won", kind="y", steps=3),
            episode("d/0", "env_error", kind="y", steps=0),
        )
    )
    nothing = {"won": 0, "ended": 0, "max_steps": 0, "context": 0, "env_error": 0}
    x, y = found["by_kind"]["x"], found["by_kind"]["y"]
    assert (x["episodes"], x["success"], x["mean_steps"]) == (4, 0.5, 2.5)
    assert (x["success_low"], x["success_high"]) == pytest.approx((0.0546, 0.9454), abs=1e-4)
    assert x["stop_reasons"] == nothing | {"won": 2, "ended": 1, "max_steps": 1}
    # Wilson of one trial that is won: 1 / (1 + 1.96^2) = 0.2065
    assert (y["episodes"], y["success"], y["mean_steps"], y["success_high"]) == (1, 1.0, 3.0, 1.0)
    assert y["success_low"] == pytest.approx(0.2065, abs=1e-4)
    assert y["stop_reasons"] == nothing | {"won": 1, "env_error": 1}
    assert found["stop_reasons"] == nothing | {"won": 3, "ended": 1, "max_steps": 1, "env_error": 1}


def test_answers_that_were_given_elsewhere_have_no_stop_reasons() -> None:
    one = EvaluatedEpisode(task_id="a", kind="x", won=True, steps=1)
    counts = {"steps": 1, "env_errors": 0, "truncated": None, "context_stops": None, "invalid_actions": 0}
    found = success_metrics([one], counts)
    assert found["stop_reasons"] is None and found["by_kind"]["x"]["stop_reasons"] is None


def test_the_interval_takes_a_task_as_one_draw(tmp_path: Path) -> None:
    """Two tasks, one always won and one never: worth one independent trial, not eight."""
    won = [episode(f"a/{index}", "won") for index in range(4)]
    lost = [episode(f"b/{index}", "max_steps") for index in range(4)]
    found, eight = held_out_metrics(shard(tmp_path, *won, *lost)), wilson(4, 8)
    # Var = 2 * (2^2 + 2^2) / 8^2 = 1/4: (1/4) / (1/4) = 1
    assert eight is not None and found["success"] == eight.estimate
    assert (found["success_low"], found["success_high"]) == pytest.approx((0.0546, 0.9454), abs=1e-4)
    assert found["success_low"] < eight.low and eight.high < found["success_high"]


def test_a_shard_without_an_episode_that_counts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the environment broke all 1 episodes"):
        held_out_metrics(shard(tmp_path / "broken", episode("a/0", "env_error")))
    with pytest.raises(UserError, match="no episode was played"):
        held_out_metrics(shard(tmp_path / "empty"))
