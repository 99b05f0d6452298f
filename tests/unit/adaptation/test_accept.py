"""The acceptance rule at and around each of its bounds, with k = 8 rollouts and the band (0.2, 0.8)."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from rla.adaptation.acceptance import TaskVerdict, Verdict, judge_pending, verdict
from rla.config.sections import AdaptationConfig
from rla.errors import UserError
from rla.store.records import Direction
from rla.store.schema import to_table
from tests.unit.adaptation.builders import pending

BAND = AdaptationConfig(alpha_low=0.2, alpha_high=0.8)


def decide(direction: Direction, parent_accuracy: float, accuracy: float) -> Verdict:
    return verdict(direction, parent_accuracy, accuracy, BAND)


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
        config=BAND,
    )
    assert asdict(first) == {
        "task_id": "t1",
        "parent_id": "s1",
        "slot": "s1",
        "iteration": 3,
        "direction": "harder",
        "rule": "paper",
        "parent_accuracy": 1.0,
        "parent_accuracy_now": None,
        "parent_rollouts": 0,
        "accuracy": 0.5,
        "rollouts": 8,
        "confidence": None,
        "difference_low": None,
        "difference_high": None,
        "accepted": True,
        "reason": "harder: accuracy 0.500 against 1.000",
        "expert_success": None,
        "expert_steps": None,
        "parent_expert_success": None,
        "parent_expert_steps": None,
        "root_expert_success": None,
        "root_expert_steps": None,
    }
    assert to_table("verdicts", [asdict(first), asdict(second)]).num_rows == 2
    assert (second.accepted, second.rollouts, second.reason) == (False, 0, "no rollout finished")


def compared(direction: str, *, asked: float, parent: float | None, child: float) -> TaskVerdict:
    """The verdict by interval where parent and child were played eight times each."""
    measured = {"t1": (child, 8)} | ({} if parent is None else {"s1": (parent, 8)})
    [found] = judge_pending(
        [pending("s1", task_id="t1", direction=direction)],
        measured,
        {"t1": asked},
        iteration=3,
        config=replace(BAND, acceptance="interval"),
    )
    return found


def test_an_interval_compares_with_the_parent_of_this_iteration() -> None:
    """The parent was never won when the change was asked for; meanwhile the policy has learnt it."""
    learnt = compared("easier", asked=0.0, parent=0.5, child=0.5)
    assert (learnt.accepted, learnt.reason) == (False, "not easier: accuracy 0.500 is not above 0.500")
    easier = compared("easier", asked=0.0, parent=0.0, child=0.5)
    # The mirror image of 8/8 against 4/8, see test_stats.py
    assert (easier.difference_low, easier.difference_high) == pytest.approx((0.143556, 0.751366), abs=2e-5)
    assert easier.accepted
    assert easier.reason == "easier: accuracy 0.500 against 0.000, difference +0.144 to +0.751 at 0.9"
    assert (easier.parent_accuracy, easier.parent_accuracy_now, easier.parent_rollouts) == (0.0, 0.0, 8)


def test_a_difference_that_may_be_chance_is_not_enough() -> None:
    # Wilson at 90%, 6/8: (0.75 + 0.169096)/1.338193 -+ 1.229160 sqrt(0.0234375 + 0.010568) = 0.686819 -+ 0.226667
    # 0.75 - 1: up sqrt((0.913486 - 0.75)^2 + (1 - 0.747279)^2) = 0.300989, so the upper bound is above 0
    chance = compared("harder", asked=1.0, parent=1.0, child=0.75)
    assert not chance.accepted
    assert chance.difference_high == pytest.approx(0.050989, abs=2e-4)
    # and below: sqrt((0.75 - 0.460152)^2 + 0), so the lower bound is -0.539848
    assert chance.reason == "not certain: difference -0.540 to +0.051 at 0.9"
    paper = judge_pending([pending("s1", task_id="t1")], {"t1": (0.75, 8)}, {"t1": 1.0}, iteration=3, config=BAND)
    assert paper[0].accepted


def test_an_interval_keeps_the_band_and_needs_the_parent() -> None:
    assert compared("harder", asked=1.0, parent=1.0, child=0.125).reason.startswith("too hard")
    assert compared("easier", asked=0.0, parent=0.0, child=1.0).reason.startswith("too easy")
    unplayed = compared("harder", asked=1.0, parent=None, child=0.5)
    assert (unplayed.accepted, unplayed.reason) == (False, "no rollout of the parent finished")
    assert (unplayed.parent_accuracy_now, unplayed.parent_rollouts, unplayed.confidence) == (None, 0, None)


@pytest.mark.parametrize(
    ("direction", "accuracies"), [(None, {"t1": 1.0}), ("harder", {})], ids=["direction", "accuracy"]
)
def test_a_candidate_that_does_not_say_where_it_comes_from_is_refused(
    direction: str | None, accuracies: dict[str, float]
) -> None:
    lost = pending("s1", task_id="t1", direction=direction)
    with pytest.raises(UserError, match="pending task t1 has no parent"):
        judge_pending([lost], {"t1": (0.5, 8)}, accuracies, iteration=3, config=BAND)
