"""The judge against fact, on steps that can be counted by eye."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, sqrt

import polars as pl
import pytest

from rla.metrics.diagnostics import Metrics, process_metrics
from rla.rollouts.labels import LABELS
from tests.unit.credit.builders import Votes, episodes, judgements

Fact = tuple[int, float | None, float | None]  # label, what was left before and after


def labels(facts: Mapping[str, Sequence[Fact]]) -> pl.DataFrame:
    rows = [
        (name, name.split("/")[0], step, *fact)
        for name, of_trajectory in facts.items()
        for step, fact in enumerate(of_trajectory)
    ]
    return pl.DataFrame(rows, schema=LABELS, orient="row")


def measure(
    outcomes: dict[str, int], votes: Mapping[str, Sequence[Votes]], facts: Mapping[str, Sequence[Fact]]
) -> Metrics:
    return process_metrics(episodes(outcomes), judgements(votes), labels(facts))


def figures(found: Metrics, prefix: str) -> list[float | int | None]:
    names = ("votes", "accuracy", "good", "bad", "balanced")
    return [found[f"{prefix}_{name}"] for name in names]


# Task p, won: a step nearer to the goal (3 -> 2) and one that looks somewhere new but is no nearer (2 -> 3).
# Task q, lost: a useless step (4 -> 4), and a return (4 -> 5).
OUTCOMES = {"p/0": 1, "q/0": -1}
FACTS: Mapping[str, Sequence[Fact]] = {"p/0": [(1, 3, 2), (1, 2, 3)], "q/0": [(-1, 4, 4), (-1, 4, 5)]}
VOTES: Mapping[str, Sequence[Votes]] = {"p/0": [[1, 1, -1], [1, -1, None]], "q/0": [[-1, 1, 1], [-1]]}


def test_votes_are_measured_against_the_labels() -> None:
    # p: + + - against +, + - against +: 3 of 5. q: - + + against -, - against -: 2 of 4. In all 5 of 9.
    found = measure(OUTCOMES, VOTES, FACTS)
    expected = [9, 5 / 9, 3 / 5, 2 / 4, (3 / 5 + 2 / 4) / 2]
    assert figures(found, "rm_process") == pytest.approx(expected)
    assert (found["labelled_steps"], found["good_steps"]) == (4, 0.5)


def test_the_interval_takes_the_task_as_the_unit() -> None:
    # p: 3 of 3 votes are right, q: none of 3; Var = 2 * 2 (3 - 3/2)^2 / 36 = 1/4: worth one trial, whatever the votes.
    votes: Mapping[str, Sequence[Votes]] = {"p/0": [[1, 1], [1]], "q/0": [[1, 1], [1]]}
    found = measure(OUTCOMES, votes, FACTS)
    one = wilson_half(trials=1)
    assert found["rm_process_low"] == pytest.approx(0.5 - one, abs=1e-6)
    assert found["rm_process_high"] == pytest.approx(0.5 + one, abs=1e-6)


def wilson_half(*, trials: int) -> float:
    """Half the width of Wilson's 95% interval around 1/2: z sqrt(1/4n + z^2/4n^2) / (1 + z^2/n)."""
    z2 = 1.959964**2
    return sqrt(z2 * (1 / (4 * trials) + z2 / (4 * trials * trials))) / (1 + z2 / trials)


def test_a_judge_that_always_says_yes_has_a_balanced_accuracy_of_one_half() -> None:
    facts: Mapping[str, Sequence[Fact]] = {"p/0": [(1, 3, 2), (1, 2, 1), (1, 1, 0), (-1, 3, 3)]}
    found = measure({"p/0": 1}, {"p/0": [[1]] * 4}, facts)
    assert (found["rm_process_accuracy"], found["rm_process_balanced"]) == (0.75, 0.5)


def test_the_way_covered_is_that_of_the_nearest_point() -> None:
    # p/0 won: all of it. p/1: from 4 down to 1 and back to 3: 3/4. p/2 only went away: 0.
    facts: Mapping[str, Sequence[Fact]] = {
        "p/0": [(1, 2, 1), (1, 1, 0)],
        "p/1": [(1, 4, 1), (-1, 1, 3)],
        "p/2": [(-1, 4, 5), (-1, 5, inf)],
    }
    found = measure({"p/0": 1, "p/1": -1, "p/2": -1}, {}, facts)
    assert found["distance_covered"] == pytest.approx((1 + 3 / 4 + 0) / 3)


def test_a_dead_end_has_no_way_and_a_label_without_distance_still_counts() -> None:
    assert measure({"p/0": -1}, {}, {"p/0": [(-1, inf, inf), (1, inf, 7)]})["distance_covered"] is None
    found = measure({"p/0": 1}, {"p/0": [[1]]}, {"p/0": [(1, None, None)]})
    assert (found["rm_process_accuracy"], found["distance_covered"]) == (1.0, None)


def test_steps_of_episodes_that_are_left_out_do_not_count() -> None:
    assert measure({"p/0": 1}, VOTES, FACTS)["rm_process_votes"] == 5


def test_without_labels_every_figure_is_null_and_counts_are_zero() -> None:
    found = measure(OUTCOMES, VOTES, {})
    assert [found.pop(name) for name in ("labelled_steps", "rm_process_votes")] == [0, 0]
    assert set(found.values()) == {None}
    unjudged = measure(OUTCOMES, {}, FACTS)
    assert (unjudged["rm_process_accuracy"], unjudged["good_steps"]) == (None, 0.5)
