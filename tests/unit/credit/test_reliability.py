"""How much of lambda the votes have earned: the slope of the judgement on the outcome, over all steps or by place."""

from __future__ import annotations

import polars as pl
import pytest

from rla.config.sections import CreditConfig
from rla.credit.estimators import both_advantages, weighed
from rla.credit.judged import licensed
from tests.unit.credit.builders import Votes, episodes, judgements, steps

FOUR = {"q/a": 1, "q/b": 1, "q/c": -1, "q/d": -1}


def placed(votes: dict[str, list[Votes]], places: dict[str, list[str]]) -> pl.DataFrame:
    flat = [place for name in votes for place in places[name]]
    return steps(votes).with_columns(place=pl.Series(flat, dtype=pl.String))


def test_over_all_steps_the_share_is_mu_minus_one() -> None:
    """Won: votes + + -, so p+ = 2/3. Lost: - - - +, so p- = 3/4. mu = 17/12."""
    votes = {"q/a": [[1], [1], [-1]], "q/c": [[-1], [-1], [-1], [1]]}
    found = licensed(episodes({"q/a": 1, "q/c": -1}), steps(votes), of="pooled")
    assert found == pytest.approx(2 / 3 + 3 / 4 - 1)


def test_a_judge_that_is_no_better_than_chance_licenses_nothing() -> None:
    worse = {"q/a": [[-1]], "q/c": [[1]]}
    even = {"q/a": [[1], [-1]], "q/c": [[1], [-1]]}
    played = episodes({"q/a": 1, "q/c": -1})
    assert licensed(played, steps(worse), of="pooled") == 0.0
    assert licensed(played, steps(even), of="pooled") == pytest.approx(0.0)
    assert licensed(played, steps(worse), of="none") == 1.0


def test_a_judge_that_knows_the_task_and_not_the_choice_licenses_nothing_by_place() -> None:
    """It says + of the easy task x and - of the hard task y, whatever was done: mu is 4/3, and no choice is judged."""
    outcomes = {"x/a": 1, "x/b": 1, "x/c": -1, "y/a": 1, "y/b": -1, "y/c": -1}
    votes: dict[str, list[Votes]] = {name: [[1 if name[0] == "x" else -1]] for name in outcomes}
    frame = placed(votes, {name: ["door"] for name in outcomes})
    # over all steps: mean vote of the won 1/3, of the lost -1/3, half of what lies between is 1/3
    assert licensed(episodes(outcomes), frame, of="pooled") == pytest.approx(1 / 3)
    assert licensed(episodes(outcomes), frame, of="place") == 0.0


def test_by_place_a_worked_example() -> None:
    """door: O = 1, 1, -1, -1, S = 1, 0, 0, -1: sum of products 2 of 4. desk: one visit, which adds nothing."""
    votes: dict[str, list[Votes]] = {"q/a": [[1], [-1]], "q/b": [[1, -1]], "q/c": [[1, -1]], "q/d": [[-1]]}
    places = {"q/a": ["door", "desk"], "q/b": ["door"], "q/c": ["door"], "q/d": ["door"]}
    assert licensed(episodes(FOUR), placed(votes, places), of="place") == pytest.approx(2 / 4)


def test_where_all_ended_alike_nothing_is_known() -> None:
    assert licensed(episodes({"q/a": 1, "q/b": 1}), steps({"q/a": [[1]], "q/b": [[1]]}), of="pooled") == 0.0


def test_steps_without_votes_and_steps_of_others_do_not_count() -> None:
    votes = {"q/a": [[1], [None]], "q/c": [[-1]], "q/z": [[-1]]}
    found = licensed(episodes({"q/a": 1, "q/c": -1}), steps(votes), of="pooled")
    assert found == pytest.approx(1.0)


def test_both_models_are_paid_with_the_lambda_that_is_left() -> None:
    """mu - 1 = 1/2 of lambda 2: R = O + mean S for the policy and for the judge."""
    votes: dict[str, list[Votes]] = {"q/a": [[1], [1]], "q/c": [[1], [-1]]}
    played, judged = episodes({"q/a": 1, "q/c": -1}), steps(votes)
    config = weighed(CreditConfig(step_weight=2.0, reliability="pooled"), played, judged)
    assert config.step_weight == pytest.approx(1.0)
    policy, rm = both_advantages(played, judged, judgements(votes), config)
    assert policy["reward"].to_list() == pytest.approx([2.0, 2.0, 0.0, -2.0])
    assert rm["reward"].to_list() == pytest.approx([2.0, 2.0, 0.0, 2.0])


def test_the_share_is_of_the_votes_that_pay() -> None:
    """Means of won and lost steps are 2/3 and -1/3: half their difference is 1/2. Of unanimous votes they are 1, -1."""
    votes: dict[str, list[Votes]] = {"q/a": [[1, 1, 1], [1, 1, -1]], "q/c": [[-1, -1, -1], [1, 1, -1]]}
    played, judged = episodes({"q/a": 1, "q/c": -1}), steps(votes)
    every = CreditConfig(reliability="pooled", votes="all")
    unanimous = CreditConfig(reliability="pooled", votes="unanimous")
    assert weighed(every, played, judged).step_weight == pytest.approx(1 / 2)
    assert weighed(unanimous, played, judged).step_weight == pytest.approx(1.0)


def test_changes_license_what_they_say() -> None:
    """S from 1 to 1 (won) and 1 to -1 (lost): changes 0, 0 and 0, -2; half of the means' difference 0 - (-1) is 1/2."""
    votes: dict[str, list[Votes]] = {"q/a": [[1], [1]], "q/c": [[1], [-1]]}
    config = CreditConfig(reliability="pooled", judged="change")
    found = weighed(config, episodes({"q/a": 1, "q/c": -1}), steps(votes))
    assert found.step_weight == pytest.approx(1 / 2)
