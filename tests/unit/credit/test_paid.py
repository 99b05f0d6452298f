"""Which judgements pay the policy: all, the unanimous ones, or what a step changed in them."""

from __future__ import annotations

import polars as pl
import pytest

from rla.config.sections import CreditConfig
from rla.credit import judged
from rla.credit.estimators import both_advantages
from rla.credit.judged import changes, paid_steps
from tests.unit.credit.builders import Votes, episodes, judgements, lists, steps, values

VOTES: dict[str, list[Votes]] = {"q/a": [[1, -1], [1, 1], [-1]], "q/b": [[-1], [None], [1]]}


def test_votes_that_differ_do_not_pay() -> None:
    found = values(paid_steps(steps(VOTES), CreditConfig(votes="unanimous")), "mean_score")
    assert found == {("q/a", 0): None, ("q/a", 1): 1, ("q/a", 2): -1, ("q/b", 0): -1, ("q/b", 1): None, ("q/b", 2): 1}


def test_a_step_is_paid_for_what_it_changed() -> None:
    """S_0 is 0 and -1, mean -1/2: +1/2 and -1/2. Then 0 to 1 to -1; and -1, nothing, 1, which is 2 above the -1."""
    found = values(changes(steps(VOTES)), "mean_score")
    assert found == {
        ("q/a", 0): 0.5,
        ("q/a", 1): 1.0,
        ("q/a", 2): -2.0,
        ("q/b", 0): -0.5,
        ("q/b", 1): None,
        ("q/b", 2): 2.0,
    }


def test_circles_gain_nothing() -> None:
    """Whatever lies between, the changes of an episode add up to its last value minus the mean of the first."""
    round_trip: dict[str, list[Votes]] = {"q/a": [[1], [-1], [1], [-1], [1]], "q/b": [[1], [1], [1]]}
    found = changes(steps(round_trip)).group_by("trajectory_id").agg(total=pl.col("mean_score").sum())
    assert found["total"].to_list() == [0.0, 0.0]


def test_the_last_judgement_stays_so_changes_are_not_potential_based_shaping() -> None:
    """With a potential of 0 at the end, both episodes would have the same sum; here the judge's last word decides."""
    ends: dict[str, list[Votes]] = {"q/a": [[1], [1]], "q/b": [[1], [-1]]}
    found = changes(steps(ends)).group_by("trajectory_id", maintain_order=True).agg(pl.col("mean_score").sum())
    assert found["mean_score"].to_list() == [0.0, -2.0]
    assert "not potential-based shaping" in str(judged.__doc__)


@pytest.mark.parametrize("judged", ["step", "change"])
def test_the_judge_is_trained_on_its_votes_as_they_were_given(judged: str) -> None:
    votes: dict[str, list[Votes]] = {"q/a": [[1], [1, -1]], "q/b": [[1], [-1]]}
    played = episodes({"q/a": 1, "q/b": -1})
    config = CreditConfig(judged=judged, votes="unanimous", reward_model_normalise="none")  # type: ignore[arg-type]
    policy, rm = both_advantages(played, steps(votes), judgements(votes), config)
    assert policy["mean_score"].to_list() == [1.0, 0.0, 1.0, -1.0]
    assert lists(rm, "reward")["q/a", 1] == [1.0, -1.0]
    expected = [2.0, 1.0, 0.0, -2.0] if judged == "step" else [1.0, 1.0, -1.0, -3.0]
    assert policy["reward"].to_list() == expected
