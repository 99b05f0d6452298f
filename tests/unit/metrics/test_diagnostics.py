"""Success and the reward model's quality, from votes that can be counted by eye."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import exp

import polars as pl
import pytest

from rla.metrics.diagnostics import (
    Metrics,
    diagnostics,
    outcome_accuracy,
    reward_statistics,
    self_agreement,
    theorem1_bound,
)
from tests.unit.credit.builders import Votes, episodes, judgements, steps


def measure(outcomes: dict[str, int], votes: Mapping[str, Sequence[Votes]]) -> Metrics:
    return diagnostics(episodes(outcomes, n_steps=4), judgements(votes), steps(votes))


def test_p_plus_p_minus_mu_and_the_bound() -> None:
    # Success: valid votes + + - and +: p+ = 3/4. Failure: - - +: p- = 2/3.
    # mu = 17/12; valid votes a step 3, 1 and 3: m = 7/3, bound = 1 - exp(-7/3 (5/12)^2 / 4) = 1 - exp(-175/1728)
    votes: Mapping[str, Sequence[Votes]] = {"q/a": [[1, 1, -1, None], [1]], "q/b": [[-1, -1, 1]]}
    found = measure({"q/a": 1, "q/b": -1}, votes)
    assert found["p_plus"] == pytest.approx(3 / 4)
    assert found["p_minus"] == pytest.approx(2 / 3)
    assert found["mu"] == pytest.approx(17 / 12)
    assert found["theorem1_bound"] == pytest.approx(1 - exp(-175 / 1728))
    assert found["unparsable_votes"] == pytest.approx(1 / 8)


def test_replies_that_are_no_vote_do_not_raise_the_bound() -> None:
    # Four replies a step, of which 2, 0 and 1 are votes: m = 1. p+ = p- = 1, mu = 2: 1 - exp(-1/4).
    votes: Mapping[str, Sequence[Votes]] = {
        "q/a": [[1, 1, None, None], [None, None, None, None]],
        "q/b": [[-1, None, None, None]],
    }
    assert measure({"q/a": 1, "q/b": -1}, votes)["theorem1_bound"] == pytest.approx(1 - exp(-1 / 4))


@pytest.mark.parametrize(("mu", "bound"), [(0.5, 0.0), (1.0, 0.0), (2.0, 1 - exp(-3 / 4)), (1.5, 1 - exp(-3 / 16))])
def test_the_bound_says_nothing_unless_mu_exceeds_one(mu: float, bound: float) -> None:
    assert theorem1_bound(mu, 3) == pytest.approx(bound)


def test_outcome_accuracy_counts_a_tie_one_half_and_leaves_out_what_was_not_judged() -> None:
    # a: mean (1 + 1/3) / 2 > 0, won: right. b: mean -1, won: wrong. c: mean 0: half. d: no valid vote.
    votes: Mapping[str, Sequence[Votes]] = {
        "q/a": [[1, 1, 1], [1, 1, -1]],
        "q/b": [[-1]],
        "q/c": [[1], [-1]],
        "q/d": [[None]],
    }
    played = episodes({"q/a": 1, "q/b": 1, "q/c": -1, "q/d": -1})
    assert outcome_accuracy(played, steps(votes)) == pytest.approx(1.5 / 3)


def test_outcome_accuracy_averages_steps_not_votes() -> None:
    # step means +1 (three votes) and -1, -1 (one vote each): the mean over steps is -1/3, over votes +1/5
    votes: Mapping[str, Sequence[Votes]] = {"q/a": [[1, 1, 1], [-1], [-1]]}
    assert outcome_accuracy(episodes({"q/a": -1}), steps(votes)) == 1.0


def test_self_agreement_is_the_chance_that_two_votes_are_equal() -> None:
    # + + -: of three pairs one is equal. + + (one invalid): 1. A single valid vote has no pair.
    # Mean (1/3 + 1) / 2.
    votes: Mapping[str, Sequence[Votes]] = {"q/a": [[1, 1, -1], [1, 1, None], [1, None, None]]}
    assert self_agreement(judgements(votes)) == pytest.approx(2 / 3)


def test_success_is_that_of_active_tasks_while_the_reward_model_is_measured_on_all() -> None:
    active = episodes({"q/a": 1, "s/b": -1, "t/c": -1, "u/d": -1}, n_steps=3)
    pending = episodes({"r/a": 1, "r/b": 1}, status="pending", n_steps=9)
    votes: Mapping[str, Sequence[Votes]] = {"q/a": [[-1]], "r/a": [[1]], "r/b": [[1]]}
    found = diagnostics(pl.concat([active, pending]), judgements(votes), steps(votes))
    assert (found["episodes"], found["success"], found["mean_steps"]) == (4, 0.25, 3.0)
    # One episode of each of four tasks: Var = 4/3 * (9 + 3)/16^2 = 1/16, worth (3/16) / (1/16) = 3 trials.
    # (1/4 + 3.841459/6 -+ 1.959964 sqrt((3/16)/3 + 3.841459/36)) / (1 + 3.841459/3) = 0.3903742 -+ 0.3535331
    assert (found["success_low"], found["success_high"]) == pytest.approx((0.0368412, 0.7439073), abs=1e-6)
    assert found["p_plus"] == pytest.approx(2 / 3)


def test_without_data_every_quantity_is_null_and_counts_are_zero() -> None:
    found = measure({}, {})
    assert found.pop("episodes") == 0
    assert set(found.values()) == {None}


def test_without_a_reward_model_success_is_still_measured() -> None:
    found = measure({"q/a": 1, "q/b": -1}, {})
    assert found["success"] == 0.5
    assert (found["mu"], found["theorem1_bound"], found["rm_outcome_accuracy"]) == (None, None, None)
    json.dumps(found, allow_nan=False)


def test_where_everything_was_won_p_minus_and_mu_are_null() -> None:
    found = measure({"q/a": 1}, {"q/a": [[1, 1]]})
    assert (found["p_plus"], found["p_minus"], found["mu"], found["theorem1_bound"]) == (
        1.0,
        None,
        None,
        None,
    )


def test_reward_statistics_count_the_rows_that_train() -> None:
    # rewards 2, 0, -1: mean 1/3; advantages 1, -1, 0: population deviation sqrt(2/3)
    policy = pl.DataFrame({"reward": [2.0, 0.0, -1.0], "advantage": [1.0, -1.0, 0.0]})
    rm = pl.DataFrame({"reward": [1.0], "advantage": [0.0]})
    found = reward_statistics(policy, rm)
    assert (found["policy_samples"], found["rm_samples"]) == (2, 0)
    assert found["reward_mean"] == pytest.approx(1 / 3)
    assert found["advantage_std"] == pytest.approx((2 / 3) ** 0.5)
