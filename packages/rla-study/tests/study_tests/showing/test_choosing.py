"""Which steps are worth a look, worked out by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from rla_study.showing.episodes import Choice, chosen_steps

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


def chosen(choice: Choice, count: int) -> list[tuple[str, int, str]]:
    votes = [("a", step, vote) for step, (cast, _, _) in STEPS.items() for vote in cast]
    labels = [("a", step, label) for step, (_, label, _) in STEPS.items() if label is not None]
    paid = [("a", step, advantage) for step, (_, _, advantage) in STEPS.items()]
    frame: Any = lambda rows, name: pl.DataFrame(rows, schema=["trajectory_id", "step", name], orient="row")  # noqa: E731
    frames = {"labels": frame(labels, "label"), "paid": frame(paid, "advantage")}
    return chosen_steps(frame(votes, "score"), **frames, choice=choice, count=count)


@pytest.mark.parametrize(("choice", "steps"), [("worst", [3, 2, 1]), ("disputed", [4, 1])])
def test_the_order_of_a_choice(choice: Choice, steps: list[int]) -> None:
    assert [step for _, step, _ in chosen(choice, 10)] == steps
    assert [step for _, step, _ in chosen(choice, 1)] == steps[:1]


def test_it_says_why() -> None:
    assert chosen("worst", 1) == [("a", 3, "2 of 2 votes call the step good, and it did not help")]
    assert chosen("disputed", 1)[0][2] == "1 of 2 votes call the step good"
