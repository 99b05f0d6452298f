"""What was judged before a step is taken off its reward: a baseline, with the weight that least squares gives it."""

from __future__ import annotations

import polars as pl
import pytest

from rla.config.sections import CreditConfig
from rla.credit.advantages import baseline_weight, both_advantages, weighed, with_baseline
from rla.envs.registry import load_config
from rla.errors import UserError
from tests.unit.credit.builders import Votes, episodes, judgements, lists, steps, values

TWO = {"q/a": 1, "q/b": -1}
VOTES: dict[str, list[Votes]] = {"q/a": [[1], [1], [-1]], "q/b": [[-1], [1, -1]]}


def test_a_step_has_the_judgement_before_it_with_baseline() -> None:
    """a: 1 and 1 before its second and third step; b: -1 before its second. The first steps have the mean, -1/3."""
    found = values(with_baseline(steps(VOTES)), "mean_score")
    third = pytest.approx(-1 / 3)
    assert found == {("q/a", 0): third, ("q/a", 1): -1, ("q/a", 2): -1, ("q/b", 0): third, ("q/b", 1): 1}


def test_behind_a_step_without_votes_it_is_the_last_that_had_some() -> None:
    votes: dict[str, list[Votes]] = {"q/a": [[1], [None], [-1]], "x/a": [[None], [None]]}
    found = values(with_baseline(steps(votes)), "mean_score")
    assert found == {("q/a", 0): -1, ("q/a", 1): -1, ("q/a", 2): -1, ("x/a", 0): None, ("x/a", 1): None}


def test_the_weight_is_that_of_least_squares() -> None:
    """S before: a 1/3, 1, 1; b 1/3, -1; mean 1/3. O: 1 1 1 -1 -1, mean 1/5.

    S - mean: 0, 2/3, 2/3, 0, -4/3, squares 24/9. Products with O - mean: 2 (2/3)(4/5) + (4/3)(6/5) = 8/3. c = 1.
    """
    assert weight(TWO, VOTES) == pytest.approx(1.0)


def test_what_a_judge_knows_of_tasks_alone_weighs_nothing() -> None:
    """It says + of task x, which is won more often, and - of task y: within a task nothing differs."""
    outcomes = {"x/a": 1, "x/b": 1, "x/c": -1, "y/a": 1, "y/b": -1, "y/c": -1}
    votes: dict[str, list[Votes]] = {name: [[1 if name[0] == "x" else -1]] * 2 for name in outcomes}
    assert weight(outcomes, votes) == 0.0


def test_a_judge_that_is_wrong_throughout_weighs_nothing() -> None:
    votes: dict[str, list[Votes]] = {"q/a": [[-1], [1]], "q/b": [[1], [1]]}
    assert weight(TWO, votes) == 0.0


def test_the_last_votes_pay_the_judge_alone() -> None:
    """They are turned round, and the policy's rewards stay; its judge is paid for them as they are."""
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


def test_with_a_weight_that_is_given_no_vote_on_an_action_or_later_moves_its_reward() -> None:
    """The votes of steps 1 and 2 of q/a are turned round: the reward of its step 1 stays, that of step 2 moves."""
    turned = VOTES | {"q/a": [[1], [-1], [1]]}
    config = CreditConfig(judged="baseline", normalise="step")
    found = []
    for votes in (VOTES, turned):
        policy, _ = both_advantages(episodes(TWO), steps(votes), judgements(votes), config)
        found.append({key: value for key, value in values(policy, "reward").items() if key[0] == "q/a" and key[1] > 0})
    assert found[0]["q/a", 1] == found[1]["q/a", 1]
    assert found[0]["q/a", 2] != found[1]["q/a", 2]


def test_the_weight_is_at_most_one() -> None:
    """S before the second steps is 1/2 and -1/2, and 0 before the first: c would be 2."""
    votes: dict[str, list[Votes]] = {"q/a": [[1, 1, 1, -1], [1]], "q/b": [[1, -1, -1, -1], [1]]}
    assert weight(TWO, votes) == 1.0


def test_the_weight_is_fitted_where_tasks_train() -> None:
    """Task x is lost in all episodes, so nothing of it trains: what the judge says there counts for nothing."""
    lost: dict[str, list[Votes]] = {"x/a": [[1], [1]], "x/b": [[-1], [1]]}
    before = {"q/a": [[1], [1]], "q/b": [[-1], [1, -1]], "z/a": [[1], [-1]], "z/b": [[1], [1]]}
    outcomes = TWO | {"z/a": 1, "z/b": -1}
    config = CreditConfig(judged="baseline", normalise="task")
    both = [
        weighed(config, episodes(o), steps(v)).step_weight
        for o, v in ((outcomes, before), (outcomes | {"x/a": -1, "x/b": -1}, before | lost))
    ]
    assert both[0] == both[1] > 0


@pytest.mark.parametrize("change", ["credit.normalise=step", "credit.policy_band=[-1, 2]"])
def test_a_baseline_is_refused_where_it_alone_would_train(change: str) -> None:
    given = ["env.name=alfworld", "credit.judged=baseline", "credit.normalise=task"]
    load_config(None, given)
    with pytest.raises(UserError, match=r"credit\.judged: baseline would train on judgements alone"):
        load_config(None, [*given, change])


def test_estimators_that_ask_no_judge_stand_beside_it() -> None:
    for estimator in ("outcome", "anchor"):
        load_config(None, ["env.name=alfworld", "credit.judged=baseline", f"credit.estimator={estimator}"])


def weight(outcomes: dict[str, int], votes: dict[str, list[Votes]]) -> float:
    return baseline_weight(episodes(outcomes).with_columns(score=pl.col("outcome").cast(pl.Float64)), steps(votes))


def test_an_estimator_of_judgements_alone_takes_no_baseline() -> None:
    with pytest.raises(UserError, match=r"credit\.judged: baseline needs credit\.estimator: integrated"):
        load_config(None, ["env.name=alfworld", "credit.judged=baseline", "credit.estimator=step"])
