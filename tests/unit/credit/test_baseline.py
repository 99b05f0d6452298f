"""What was judged before a step is taken off its reward: a baseline, with the weight that least squares gives it."""

from __future__ import annotations

import pytest

from rla.config.sections import CreditConfig
from rla.credit.baseline import fitted, taken_off
from rla.credit.estimators import both_advantages, weighed
from rla.envs.configured import load_config
from rla.errors import UserError
from tests.unit.credit.builders import Votes, episodes, judgements, lists, steps, values

TWO = {"q/a": 1, "q/b": -1}
VOTES: dict[str, list[Votes]] = {"q/a": [[1], [1], [-1]], "q/b": [[-1], [1, -1]]}


def test_a_step_has_the_judgement_before_it_taken_off() -> None:
    """a: 1 and 1 before its second and third step; b: -1 before its second. The first steps have the mean, -1/3."""
    found = values(taken_off(steps(VOTES)), "mean_score")
    third = pytest.approx(-1 / 3)
    assert found == {("q/a", 0): third, ("q/a", 1): -1, ("q/a", 2): -1, ("q/b", 0): third, ("q/b", 1): 1}


def test_behind_a_step_without_votes_it_is_the_last_that_had_some() -> None:
    votes: dict[str, list[Votes]] = {"q/a": [[1], [None], [-1]], "x/a": [[None], [None]]}
    found = values(taken_off(steps(votes)), "mean_score")
    assert found == {("q/a", 0): -1, ("q/a", 1): -1, ("q/a", 2): -1, ("x/a", 0): None, ("x/a", 1): None}


def test_the_weight_is_that_of_least_squares() -> None:
    """S before: a 1/3, 1, 1; b 1/3, -1; mean 1/3. O: 1 1 1 -1 -1, mean 1/5.

    S - mean: 0, 2/3, 2/3, 0, -4/3, squares 24/9. Products with O - mean: 2 (2/3)(4/5) + (4/3)(6/5) = 8/3. c = 1.
    """
    assert fitted(episodes(TWO), steps(VOTES)) == pytest.approx(1.0)


def test_what_a_judge_knows_of_tasks_alone_weighs_nothing() -> None:
    """It says + of task x, which is won more often, and - of task y: within a task nothing differs."""
    outcomes = {"x/a": 1, "x/b": 1, "x/c": -1, "y/a": 1, "y/b": -1, "y/c": -1}
    votes: dict[str, list[Votes]] = {name: [[1 if name[0] == "x" else -1]] * 2 for name in outcomes}
    assert fitted(episodes(outcomes), steps(votes)) == 0.0


def test_a_judge_that_is_wrong_throughout_weighs_nothing() -> None:
    votes: dict[str, list[Votes]] = {"q/a": [[-1], [1]], "q/b": [[1], [1]]}
    assert fitted(episodes(TWO), steps(votes)) == 0.0


def test_no_vote_on_an_action_changes_its_own_reward() -> None:
    """The last votes are turned round, and the policy's rewards stay; its judge is paid for them as they are."""
    turned = VOTES | {"q/a": [[1], [1], [1]], "q/b": [[-1], [-1, 1]]}
    config = CreditConfig(judged="baseline", normalise="task", reward_model_normalise="none")
    found = []
    for votes in (VOTES, turned):
        frame = steps(votes)
        policy, rm = both_advantages(episodes(TWO), frame, judgements(votes), weighed(config, episodes(TWO), frame))
        found.append((policy["reward"].to_list(), policy["advantage"].to_list(), lists(rm, "reward")["q/a", 2]))
    assert found[0][:2] == found[1][:2]
    # R = O - c S with c = 1: 2/3, 0, 0 and -4/3, 0; the judge's R = O + c S = 0 and 2
    assert found[0][0] == pytest.approx([2 / 3, 0, 0, -4 / 3, 0])
    assert (found[0][2], found[1][2]) == (pytest.approx([0.0]), pytest.approx([2.0]))


def test_estimators_that_add_up_judgements_take_no_baseline() -> None:
    for estimator in ("step", "return"):
        with pytest.raises(UserError, match=r"credit\.judged: baseline needs credit\.estimator: integrated"):
            load_config(None, ["env.name=alfworld", "credit.judged=baseline", f"credit.estimator={estimator}"])
