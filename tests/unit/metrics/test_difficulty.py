"""Accuracy and importance ratio of tasks, from outcomes that can be counted by eye."""

from __future__ import annotations

import polars as pl
import pytest

from rla.metrics.diagnostics import balance, difficulty, task_rows
from tests.unit.credit.builders import episodes, judgements
from tests.unit.metrics.test_process import FACTS, VOTES, labels


def outcomes(**tasks: tuple[int, int]) -> dict[str, int]:
    """`q=(1, 3)`: task q was won once and lost three times."""
    return {f"{q}/{n}": 1 if n < won else -1 for q, (won, lost) in tasks.items() for n in range(won + lost)}


def test_the_ratio_of_a_task() -> None:
    # accuracies 1/4 -> 3, 2/3 -> 2, 1/2 -> 1; of tasks that are always won or always lost it has no bound
    table = difficulty(episodes(outcomes(a=(1, 3), b=(2, 1), c=(1, 1), d=(1, 0), e=(0, 2))))
    assert table["task_id"].to_list() == ["a", "b", "c", "d", "e"]
    assert table["importance_ratio"].to_list() == [pytest.approx(3), pytest.approx(2), pytest.approx(1), None, None]


def test_quantiles_are_of_the_tasks_that_have_a_ratio() -> None:
    # Ratios 1, 2, 3: median 2; the 90% quantile lies at 0.9 * 2 = 1.8 of the way: 2.8. Two of five tasks have none.
    found = balance(episodes(outcomes(a=(1, 3), b=(2, 1), c=(1, 1), d=(1, 0), e=(0, 2))))
    assert found == {
        "importance_ratio_median": pytest.approx(2),
        "importance_ratio_p90": pytest.approx(2.8),
        "importance_ratio_max": pytest.approx(3),
        "one_sided_tasks": pytest.approx(2 / 5),
    }
    assert set(balance(episodes(outcomes(d=(1, 0)))).values()) == {None, 1.0}
    assert set(balance(episodes({})).values()) == {None}


def test_one_row_per_task_that_was_played() -> None:
    # Task p: one episode, won, judged right in 3 of 5 votes; from 3 to go down to 2: a third of the way.
    # Task q: 2 of 4 votes, no nearer. Task r: lost once and won once, without labels or votes.
    played = episodes({"p/0": 1, "q/0": -1, "r/0": 1, "r/1": -1}, n_steps=2).with_columns(kind=pl.lit("place"))
    p, q, r = task_rows(played, judgements(VOTES), labels(FACTS))
    assert p == {
        "task_id": "p",
        "slot": "p",
        "kind": "place",
        "status": "active",
        "episodes": 1,
        "accuracy": 1.0,
        "importance_ratio": None,
        "mean_steps": 2.0,
        "distance_covered": pytest.approx(1 / 3),
        "good_steps": 1.0,
        "process_votes": 5,
        "process_accuracy": pytest.approx(3 / 5),
    }
    assert (q["distance_covered"], q["good_steps"], q["process_accuracy"]) == (0.0, 0.0, 0.5)
    assert (r["episodes"], r["importance_ratio"], r["process_votes"]) == (2, 1.0, None)
    unjudged = task_rows(played, judgements({}), labels(FACTS))[0]
    assert (unjudged["good_steps"], unjudged["process_votes"], unjudged["process_accuracy"]) == (1.0, 0, None)
