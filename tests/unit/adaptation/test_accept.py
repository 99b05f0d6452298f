"""The acceptance rule at and around each of its bounds, with k = 8 rollouts and the band (0.2, 0.8)."""

from __future__ import annotations

import pytest

from rla.adaptation.accept import Verdict, judge_pending, verdict
from rla.errors import UserError
from rla.records import Direction
from tests.unit.adaptation.builders import pending


def decide(direction: Direction, parent_accuracy: float, accuracy: float) -> Verdict:
    return verdict(direction, parent_accuracy, accuracy, alpha_low=0.2, alpha_high=0.8)


@pytest.mark.parametrize(
    ("parent", "child", "accepted"),
    [
        (1.0, 0.5, True),
        (1.0, 7 / 8, True),  # still above the band, yet harder: the rule has no upper bound of its own
        (1.0, 2 / 8, True),
        (1.0, 0.2, False),  # the lower bound is strict
        (1.0, 1 / 8, False),
        (1.0, 0.0, False),
        (7 / 8, 7 / 8, False),  # as hard as its parent
        (7 / 8, 1.0, False),
    ],
)
def test_harder(parent: float, child: float, accepted: bool) -> None:
    assert decide(Direction.HARDER, parent, child).accepted is accepted


@pytest.mark.parametrize(
    ("parent", "child", "accepted"),
    [
        (0.0, 0.5, True),
        (0.0, 1 / 8, True),  # still below the band, yet easier and won once
        (1 / 8, 6 / 8, True),
        (0.0, 0.8, False),  # the upper bound is strict
        (0.0, 1.0, False),
        (1 / 8, 1 / 8, False),
        (1 / 8, 0.0, False),
        (0.0, 0.0, False),
    ],
)
def test_easier(parent: float, child: float, accepted: bool) -> None:
    assert decide(Direction.EASIER, parent, child).accepted is accepted


def test_the_reason_names_the_bound_that_failed() -> None:
    assert decide(Direction.HARDER, 1.0, 0.125).reason == "too hard: accuracy 0.125 is not above 0.200"
    assert decide(Direction.HARDER, 0.875, 1.0).reason == "not harder: accuracy 1.000 is not below 0.875"
    assert decide(Direction.EASIER, 0.125, 0.125).reason == "not easier: accuracy 0.125 is not above 0.125"
    assert decide(Direction.EASIER, 0.125, 0.875).reason == "too easy: accuracy 0.875 is not below 0.800"
    assert decide(Direction.EASIER, 0.0, 0.0).reason == "never won"
    assert decide(Direction.EASIER, 0.0, 0.5).reason == "easier: accuracy 0.500 against 0.000"


def test_pending_tasks_get_one_row_each_and_an_unplayed_one_is_rejected() -> None:
    harder = pending("s1", task_id="t1")
    unplayed = pending("s2", task_id="t2", direction="easier")
    first, second = judge_pending(
        [harder, unplayed],
        {"t1": (0.5, 8)},
        {"t1": 1.0, "t2": 0.0},
        iteration=3,
        alpha_low=0.2,
        alpha_high=0.8,
    )
    assert first.row() == {
        "task_id": "t1",
        "parent_id": "s1",
        "slot": "s1",
        "iteration": 3,
        "direction": "harder",
        "parent_accuracy": 1.0,
        "accuracy": 0.5,
        "rollouts": 8,
        "accepted": True,
        "reason": "harder: accuracy 0.500 against 1.000",
    }
    assert (second.accepted, second.rollouts, second.reason) == (False, 0, "no rollout finished")


@pytest.mark.parametrize(
    ("direction", "accuracies"), [(None, {"t1": 1.0}), ("harder", {})], ids=["direction", "accuracy"]
)
def test_a_candidate_that_does_not_say_where_it_comes_from_is_refused(
    direction: str | None, accuracies: dict[str, float]
) -> None:
    lost = pending("s1", task_id="t1", direction=direction)
    with pytest.raises(UserError, match="pending task t1 has no parent"):
        judge_pending([lost], {"t1": (0.5, 8)}, accuracies, iteration=3, alpha_low=0.2, alpha_high=0.8)
