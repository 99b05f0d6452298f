"""Steps that teach the reward model what the environment says of them."""

from __future__ import annotations

import polars as pl
import pytest

from rla.config.sections import CreditConfig
from rla.credit.estimators import both_advantages
from tests.unit.credit.builders import Votes, episodes, judgements, lists, steps

VOTES: dict[str, list[Votes]] = {"q/a": [[1, -1], [1, 1]], "q/b": [[-1, None], [1, -1]]}
OUTCOMES = {"q/a": 1, "q/b": -1}


def labelled(labels: dict[tuple[str, int], int]) -> pl.DataFrame:
    return pl.DataFrame(
        [(name, step, label) for (name, step), label in labels.items()],
        schema={"trajectory_id": pl.String, "step": pl.Int32, "label": pl.Int8},
        orient="row",
    )


def rewards(labels: dict[tuple[str, int], int], **credit: object) -> dict[tuple[str, int], list[float]]:
    config = CreditConfig(step_weight=0.5, reward_model_normalise="none", reward_model_band=(0.0, 0.8), **credit)  # type: ignore[arg-type]
    frame = steps(VOTES).with_columns(place=pl.lit("door"))
    lessons = labelled(labels) if labels else None
    _, rm = both_advantages(episodes(OUTCOMES), frame, judgements(VOTES), config, lessons)
    return lists(rm, "reward" if "reward_model_balanced" not in credit else "advantage")


def test_a_lesson_pays_for_the_label_and_other_steps_for_the_outcome() -> None:
    """lambda = 1/2. a/0 of the won episode did not help: R = -3/2, so 1 gets -3/2 and -1 gets 3/2; by its outcome it
    would be R = 1 + 0. b/1 of the lost one did help: R = 3/2. The others: a/1 R = 1 + 1/2; b/0 R = -1 - 1/2.
    """
    outcomes = {("q/a", 0): [1, -1], ("q/a", 1): [1.5, 1.5], ("q/b", 0): [1.5, -1.5], ("q/b", 1): [-1, 1]}
    assert rewards({}) == outcomes
    taught = rewards({("q/a", 0): -1, ("q/b", 1): 1})
    assert taught == outcomes | {("q/a", 0): [-1.5, 1.5], ("q/b", 1): [1.5, -1.5]}


def test_a_lesson_takes_the_place_of_a_comparison_and_trains_where_there_was_nothing_to_compare() -> None:
    """door: both were there, one won: D = 1 and -1. Where the episodes ended alike D is 0 and nothing trains."""
    taught = rewards({("q/a", 0): -1}, reward_model_outcome="place")
    assert taught["q/a", 0] == [-1.5, 1.5] and taught["q/b", 0] == [1.5, -1.5]
    config = CreditConfig(
        step_weight=0.5, reward_model_outcome="place", reward_model_normalise="none", reward_model_band=(0.2, 1.0)
    )
    frame = steps(VOTES).with_columns(place=pl.lit("door"))
    _, rm = both_advantages(
        episodes(dict.fromkeys(OUTCOMES, 1)), frame, judgements(VOTES), config, labelled({("q/b", 1): -1})
    )
    assert lists(rm, "reward") == {("q/b", 1): [-1.5, 1.5]}


def test_over_the_step_a_lesson_is_not_standardised_away() -> None:
    """a/1 is unanimous: over the step its votes cancel, as a lesson they get L S. A vote of b/0 does not parse."""
    config = CreditConfig(step_weight=0.5, reward_model_normalise="step", reward_model_band=(0.0, 0.8))
    told = both_advantages(episodes(OUTCOMES), steps(VOTES), judgements(VOTES), config)[1]
    assert lists(told, "advantage")["q/a", 1] == [0, 0]
    labels = labelled({("q/a", 1): -1, ("q/b", 0): -1})
    taught = both_advantages(episodes(OUTCOMES), steps(VOTES), judgements(VOTES), config, labels)[1]
    found = lists(taught, "advantage")
    assert found["q/a", 1] == [-1, -1] and found["q/b", 0] == [1, -1]
    assert found["q/a", 0] == lists(told, "advantage")["q/a", 0]


def test_a_task_outside_the_band_gives_no_lessons() -> None:
    config = CreditConfig(reward_model_band=(0.2, 0.8))
    lost = episodes(dict.fromkeys(OUTCOMES, -1))
    _, rm = both_advantages(lost, steps(VOTES), judgements(VOTES), config, labelled({("q/a", 0): 1}))
    assert rm.is_empty()


def test_balance_counts_lessons_by_their_label() -> None:
    """|R| of steps that are right to call good: a/1 has 3; of bad ones a/0, b/0 and b/1 have 3 + 3 + 3 = 9 with the
    labels. Half of 12 each: good ones are doubled, bad ones get two thirds.
    """
    found = rewards({("q/a", 0): -1, ("q/b", 1): -1}, reward_model_balanced=True)
    assert found["q/a", 1] == pytest.approx([3.0, 3.0])
    assert found["q/a", 0] == pytest.approx([-1.0, 1.0]) and found["q/b", 1] == pytest.approx([-1.0, 1.0])
