"""Groups that cannot be compared give 0, and the order of the rows gives nothing."""

from __future__ import annotations

import random
from math import sqrt

import polars as pl
import pytest

from rla.config.sections import CreditConfig
from rla.credit import consistency, estimators
from rla.credit.estimators import standardised
from rla.metrics.diagnostics import diagnostics
from tests.unit.credit.builders import Votes, episodes, judgements, steps


def test_standardised_divides_by_the_population_deviation_of_the_group() -> None:
    # group x: 1, 2, 3: mean 2, variance 2/3. Group y: one row. Group z: no spread.
    frame = pl.DataFrame({"group": ["x", "x", "x", "y", "z", "z"], "value": [1.0, 2.0, 3.0, 9.0, 5.0, 5.0]})
    found = frame.select(standardised("value", ["group"]).alias("a"))["a"].to_list()
    assert found == pytest.approx([-sqrt(3 / 2), 0.0, sqrt(3 / 2), 0.0, 0.0, 0.0])


def test_the_order_of_the_rows_changes_no_bit() -> None:
    rng = random.Random(0)
    votes: dict[str, list[Votes]] = {
        f"{task}/{rollout}": [rng.choices([1, -1, None], k=3) for _ in range(rng.randint(1, 9))]
        for task in range(20)
        for rollout in range(8)
    }
    tables = (episodes({name: rng.choice([1, -1]) for name in votes}), steps(votes), judgements(votes))

    def everything(played: pl.DataFrame, scored: pl.DataFrame, judged: pl.DataFrame) -> list[object]:
        policy = estimators.integrated_advantages(played, scored, step_weight=0.7)
        rm = consistency.rewards(
            judged,
            policy,
            estimators.accuracies(played),
            CreditConfig(step_weight=0.7, reward_model_normalise="task", reward_model_band=(0.0, 1.0)),
        )
        by_outcome = estimators.outcome_advantages(played, scored)
        return [policy.rows(), rm.rows(), by_outcome.rows(), estimators.accuracies(played).rows()]

    golden = everything(*tables)
    for seed in range(5):
        shuffled = [table.sample(fraction=1, shuffle=True, seed=seed) for table in tables]
        assert everything(*shuffled) == golden


def test_diagnostics_of_the_same_tables_are_the_same_bits_each_time() -> None:
    rng = random.Random(1)
    votes: dict[str, list[Votes]] = {f"q/{n}": [rng.choices([1, -1], k=3) for _ in range(5)] for n in range(200)}
    tables = (episodes({name: rng.choice([1, -1]) for name in votes}), judgements(votes), steps(votes))
    assert len({str(diagnostics(*tables)) for _ in range(5)}) == 1
