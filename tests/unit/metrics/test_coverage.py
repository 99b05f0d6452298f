"""A nominal 95% interval of success holds the true rate nearly that often, although rollouts of a task are alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from rla.metrics.diagnostics import diagnostics
from rla.metrics.success import held_out_metrics, success_interval
from rla.store.shards import Origin, write_shard
from tests.unit.builders import trajectory
from tests.unit.credit.builders import judgements, steps

SAMPLES = 300
Wins = np.ndarray  # (tasks,): how often each was won


def bounds(wins: Wins, rollouts: int) -> tuple[float, float]:
    """The bounds of the interval in the metrics of an iteration and of an evaluation."""
    found = success_interval(
        (f"t{task}", rollout < won) for task, won in enumerate(wins) for rollout in range(rollouts)
    )
    assert found is not None
    return found.low, found.high


def in_training(wins: Wins, rollouts: int) -> tuple[float, float]:
    """The bounds that an iteration's metrics give."""
    tasks = [f"t{task}" for task in range(len(wins)) for _ in range(rollouts)]
    outcomes = [1 if rollout < won else -1 for won in wins for rollout in range(rollouts)]
    played = pl.DataFrame({"task_id": tasks, "outcome": outcomes}).with_columns(
        trajectory_id=pl.int_range(pl.len()).cast(pl.String), status=pl.lit("active"), n_steps=pl.lit(1)
    )
    found = diagnostics(played, judgements({}), steps({}))
    low, high = found["success_low"], found["success_high"]
    assert low is not None and high is not None
    return low, high


def held_out(wins: Wins, rollouts: int, folder: Path) -> tuple[float, float]:
    """The bounds that an evaluation gives."""
    row = trajectory().row()
    rows = [
        row | {"trajectory_id": f"{task}/{rollout}", "task_id": f"t{task}", "outcome": 1 if rollout < won else -1}
        for task, won in enumerate(wins)
        for rollout in range(rollouts)
    ]
    counts = dict.fromkeys(("steps", "invalid_actions", "truncated", "context_stops", "env_errors"), 0)
    write_shard(folder, "trajectories", rows, Origin(config="c", inputs={}, seed=0), counts=counts)
    found = held_out_metrics(folder)
    return found["success_low"], found["success_high"]


def covered(*, mean: float, tasks: int, rollouts: int, samples: int = SAMPLES) -> float:
    """Share of the samples whose interval holds `mean`. The rates of the tasks are Beta(mean, 1 - mean): most are near
    0 or 1, as those of real tasks are.
    """
    rng = np.random.default_rng(0)
    rates = rng.beta(mean, 1 - mean, size=(samples, tasks))
    found = [bounds(wins, rollouts) for wins in rng.binomial(rollouts, rates)]
    return sum(low <= mean <= high for low, high in found) / samples


@pytest.mark.parametrize("mean", [0.2, 0.5])  # of wins; that of losses is 0.8
def test_intervals_of_sixteen_training_tasks_cover_the_rate(mean: float) -> None:
    """Wilson's interval of all 128 episodes covers in about 65%."""
    assert 0.90 <= covered(mean=mean, tasks=16, rollouts=8) <= 0.99


@pytest.mark.parametrize("mean", [0.5, 0.8])
def test_intervals_of_an_evaluation_cover_the_rate(mean: float, tmp_path: Path) -> None:
    """Wilson's interval of all 420 episodes covers in about 84%."""
    assert 0.92 <= covered(mean=mean, tasks=140, rollouts=3) <= 0.98
    wins = np.random.default_rng(1).binomial(3, np.random.default_rng(0).beta(mean, 1 - mean, size=140))
    assert in_training(wins, 3) == pytest.approx(bounds(wins, 3))
    assert held_out(wins, 3, tmp_path) == pytest.approx(bounds(wins, 3))


def test_rates_near_zero_are_covered_too() -> None:
    """A symmetric interval around the rate covers in about 70%: few samples hold one of the tasks that are won."""
    assert covered(mean=0.05, tasks=16, rollouts=8, samples=600) >= 0.8
