"""Which steps and tasks are worth a look, worked out by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from rla.report.episodes import Choice, choose_steps, flipped_tasks, step_table

# By step of episode a: votes, label, advantage.
STEPS: dict[int, tuple[list[int | None], int | None, float | None]] = {
    0: ([1, 1, 1], 1, 0.5),  # all right
    1: ([-1, -1, 1], 1, 0.5),  # two of three are wrong
    2: ([-1, -1, -1], 1, 0.1),  # all wrong
    3: ([1, 1, None], -1, -2.0),  # all that could be read are wrong, and it moved the policy more
    4: ([1, -1, None], None, 3.0),  # split, nobody knows the truth
    5: ([None, None, None], 1, 1.0),  # says nothing
    6: ([-1, -1], -1, None),  # all right, but fewer
}


@pytest.fixture
def table() -> pl.DataFrame:
    votes = [("a", step, vote) for step, (cast, _, _) in STEPS.items() for vote in cast]
    labels = [("a", step, label) for step, (_, label, _) in STEPS.items() if label is not None]
    paid = [("a", step, advantage) for step, (_, _, advantage) in STEPS.items()]
    frame: Any = lambda rows, name: pl.DataFrame(rows, schema=["trajectory_id", "step", name], orient="row")  # noqa: E731
    return step_table(frame(votes, "score"), labels=frame(labels, "label"), paid=frame(paid, "advantage"))


@pytest.mark.parametrize(("choice", "steps"), [("worst", [3, 2, 1]), ("best", [0, 6]), ("disputed", [4, 1])])
def test_the_order_of_a_choice(table: pl.DataFrame, choice: Choice, steps: list[int]) -> None:
    assert [one.step for one in choose_steps(table, choice, 10)] == steps
    assert [one.step for one in choose_steps(table, choice, 1)] == steps[:1]


def test_it_says_why(table: pl.DataFrame) -> None:
    assert choose_steps(table, "worst", 1)[0].why == "2 of 2 votes call the step good, and it did not help"
    assert choose_steps(table, "disputed", 1)[0].why == "1 of 2 votes call the step good"


def played(**tasks: str) -> pl.DataFrame:
    """`+` an episode that was won, `-` one that was lost, in the order of rollouts."""
    rows = [
        (f"{task}{number}", task, number, 1 if sign == "+" else -1)
        for task, signs in tasks.items()
        for number, sign in enumerate(signs)
    ]
    return pl.DataFrame(rows, schema=["trajectory_id", "task_id", "rollout", "outcome"], orient="row")


def test_flipped_are_tasks_that_are_won_less_often() -> None:
    found = flipped_tasks(played(a="-+++", b="+-", c="++", d="+"), played(a="-+--", b="-+", c="+-", e="-"))
    assert sorted((one.task_id, one.before, one.after) for one in found) == [("a", 0.75, 0.25), ("c", 1.0, 0.5)]
    assert next((one.won, one.lost) for one in found if one.task_id == "a") == ("a1", "a0")
