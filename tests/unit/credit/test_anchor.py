"""The episode's advantage, and beside it the comparison of steps that were taken in the same place."""

from __future__ import annotations

from math import sqrt

import polars as pl
import pytest

from rla.credit.estimators import POLICY_REWARDS, anchor_advantages
from tests.unit.credit.builders import episodes, steps, values


def played(places: dict[str, list[str]]) -> pl.DataFrame:
    """Steps of the places given, none of them judged."""
    frame = steps({name: [[None]] * len(seen) for name, seen in places.items()})
    return frame.with_columns(place=pl.Series([place for seen in places.values() for place in seen], dtype=pl.String))


def test_a_worked_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """gamma = 1/2; a wins in 3 steps (G = 1/4, 1/2, 1), b loses in 2, c wins in 1 (G = 1).

    Episodes: O = 1, -1, 1, mean 1/3, variance 8/9: A = 1/sqrt(2) for the wins, -sqrt(2) for the loss.
    door: G = 1/4, 0, 1: mean 5/12, variance 17/16/3 - 25/144 = 51/144 - 25/144 = 26/144. desk: 1/2 and 0, so +1 and -1.
    The shelf was seen once: 0.
    """
    monkeypatch.setattr("rla.credit.estimators.DISCOUNT", 0.5)
    places = {"q/a": ["door", "desk", "shelf"], "q/b": ["door", "desk"], "q/c": ["door"]}
    found = anchor_advantages(episodes({"q/a": 1, "q/b": -1, "q/c": 1}), played(places))
    win, loss, spread = 1 / sqrt(2), -sqrt(2), sqrt(26) / 12
    expected = {
        ("q/a", 0): win + (1 / 4 - 5 / 12) / spread,
        ("q/a", 1): win + 1,
        ("q/a", 2): win,
        ("q/b", 0): loss - (5 / 12) / spread,
        ("q/b", 1): loss - 1,
        ("q/c", 0): win + (7 / 12) / spread,
    }
    assert values(found, "advantage") == pytest.approx(expected)
    assert values(found, "reward") == {
        ("q/a", 0): 0.25,
        ("q/a", 1): 0.5,
        ("q/a", 2): 1.0,
        ("q/b", 0): 0.0,
        ("q/b", 1): 0.0,
        ("q/c", 0): 1.0,
    }
    assert found.schema == POLICY_REWARDS


def test_a_place_that_only_failures_reach_adds_nothing() -> None:
    places = {"q/a": ["door"], "q/b": ["door", "attic"], "q/c": ["door", "attic"]}
    found = values(anchor_advantages(episodes({"q/a": 1, "q/b": -1, "q/c": -1}), played(places)), "advantage")
    assert found[("q/b", 1)] == found[("q/c", 1)] == pytest.approx(-1 / sqrt(2))


def test_the_same_words_in_another_task_are_another_place() -> None:
    places = {"q/a": ["door"], "r/a": ["door"]}
    found = anchor_advantages(episodes({"q/a": 1, "r/a": -1}), played(places))
    assert set(found["advantage"]) == {0.0}


def test_two_visits_of_one_trajectory_are_two_members() -> None:
    # Alone in its task, so no episode term; G = 0.95 and 1 at the door: -1 and +1.
    found = anchor_advantages(episodes({"q/a": 1}), played({"q/a": ["door", "door"]}))
    assert found["advantage"].to_list() == pytest.approx([-1.0, 1.0])
