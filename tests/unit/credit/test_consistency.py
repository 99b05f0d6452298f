"""R_S_ij = R_i * S_ij, an unparsable judgement -(1 + lambda); standardised over step, task, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Literal

import polars as pl
import pytest

from rla.config.sections import CreditConfig
from rla.credit import consistency, estimators
from rla.credit.estimators import RM_REWARDS
from tests.unit.credit.builders import Votes, episodes, judgements, lists, steps

MIXED = {"q/a": 1, "q/b": -1}  # accuracy 0.5: trains the reward model


def rewards(
    outcomes: dict[str, int],
    votes: Mapping[str, Sequence[Votes]],
    *,
    normalise: Literal["step", "task", "none"] = "none",
    weight: float = 1.0,
    balanced: bool = False,
) -> pl.DataFrame:
    played = episodes(outcomes)
    return consistency.rewards(
        judgements(votes),
        estimators.integrated_advantages(played, steps(votes), step_weight=weight),
        estimators.accuracies(played),
        CreditConfig(step_weight=weight, reward_model_normalise=normalise, reward_model_balanced=balanced),
    )


def test_a_vote_is_rewarded_for_agreeing_with_outcome_and_fellow_votes() -> None:
    # q/a won, votes + + -: R = 1 + 1/3 = 4/3; rewards 4/3, 4/3, -4/3
    # q/b lost, votes + + -: R = -1 + 1/3 = -2/3; rewards -2/3, -2/3, 2/3
    found = rewards(MIXED, {"q/a": [[1, 1, -1]], "q/b": [[1, 1, -1]]})
    expected = {("q/a", 0): [4 / 3, 4 / 3, -4 / 3], ("q/b", 0): [-2 / 3, -2 / 3, 2 / 3]}
    assert list(lists(found, "reward")) == list(expected)
    for key, values in expected.items():
        assert lists(found, "reward")[key] == pytest.approx(values)
        assert lists(found, "advantage")[key] == pytest.approx(values)  # none: the advantage is the reward
    assert found.schema == RM_REWARDS


def test_normalising_over_the_step_cancels_the_size_of_the_reward() -> None:
    # x, x, -x: mean x/3, deviation |x| sqrt(8)/3, so 1/sqrt(2), 1/sqrt(2), -sqrt(2) for x = 4/3,
    # and the opposite signs for x = -2/3
    found = lists(rewards(MIXED, {"q/a": [[1, 1, -1]], "q/b": [[1, 1, -1]]}, normalise="step"), "advantage")
    golden = [1 / sqrt(2), 1 / sqrt(2), -sqrt(2)]
    assert found[("q/a", 0)] == pytest.approx(golden)
    assert found[("q/b", 0)] == pytest.approx([-value for value in golden])


def test_balanced_votes_of_won_and_of_lost_episodes_weigh_the_same() -> None:
    # votes + + - have advantages of size 4/sqrt(2) in sum over a step; one won step and three lost ones: 16/sqrt(2).
    # Each side gets 8/sqrt(2): the won step twice its advantage, the lost ones 2/3 of theirs.
    votes = {"q/a": [[1, 1, -1]], "q/b": [[1, 1, -1]] * 3}
    plain = lists(rewards(MIXED, votes, normalise="step"), "advantage")
    found = lists(rewards(MIXED, votes, normalise="step", balanced=True), "advantage")
    assert found[("q/a", 0)] == pytest.approx([2 * one for one in plain[("q/a", 0)]])
    for step in range(3):
        assert found[("q/b", step)] == pytest.approx([2 / 3 * one for one in plain[("q/b", step)]])


def test_where_only_one_outcome_trains_balance_changes_nothing() -> None:
    for lost in range(1, 40):  # sums in another order differ in their last bits
        votes = {"q/a": [[1, 1, 1]], "q/b": [[1, 1, -1]] * lost}  # unanimous: 0 over the step
        plain, found = (rewards(MIXED, votes, normalise="step", balanced=b) for b in (False, True))
        assert found["advantage"].to_list() == plain["advantage"].to_list()
        assert found["advantage"].abs().max() == pytest.approx(sqrt(2))
    assert rewards({"q/a": 1}, {"q/a": [[1, -1]]}, balanced=True).is_empty(), "won always: outside of the band"


def test_a_unanimous_step_trains_over_the_task_but_not_over_the_step() -> None:
    # q/a won, votes + +: R = 2, rewards 2, 2. q/b lost, votes + +: R = 0, rewards 0, 0.
    # Over the task: mean 1, deviation 1.
    votes = {"q/a": [[1, 1]], "q/b": [[1, 1]]}
    over_step = lists(rewards(MIXED, votes, normalise="step"), "advantage")
    over_task = lists(rewards(MIXED, votes, normalise="task"), "advantage")
    assert over_step == {("q/a", 0): [0, 0], ("q/b", 0): [0, 0]}
    assert over_task == {("q/a", 0): [1, 1], ("q/b", 0): [-1, -1]}


def test_an_unparsable_judgement_gets_the_worst_reward() -> None:
    # q/a: votes + and one unparsable: R = 1 + 1 = 2; rewards 2 and -(1 + 1)
    # lambda 0.5: R = 1.5; rewards 1.5 and -1.5
    votes: Mapping[str, Sequence[Votes]] = {"q/a": [[1, None]], "q/b": [[-1]]}
    assert lists(rewards(MIXED, votes), "reward")[("q/a", 0)] == [2.0, -2.0]
    assert lists(rewards(MIXED, votes, weight=0.5), "reward")[("q/a", 0)] == [1.5, -1.5]
    assert lists(rewards(MIXED, votes), "score")[("q/a", 0)] == [1, None]


@pytest.mark.parametrize("outcome_of", [1, -1])
@pytest.mark.parametrize("votes", [[1, 1, -1], [1, -1, -1], [1, 1, 1], [-1, -1, -1], [1, -1, None]])
def test_no_judgement_that_parses_gets_as_little_as_one_that_does_not(outcome_of: int, votes: list[int | None]) -> None:
    found = rewards({"q/a": outcome_of, "q/b": -outcome_of}, {"q/a": [[*votes, None]], "q/b": [[1]]})
    unparsable = -2.0
    parsed = [row["reward"] for row in found.iter_rows(named=True) if row["score"] is not None]
    assert min(parsed) > unparsable


def test_a_step_of_which_no_judgement_parsed_is_unanimous() -> None:
    # every reward is -2: over the step 0. Over the task 2, -2, -2: mean -2/3, deviation sqrt(32)/3
    votes: Mapping[str, Sequence[Votes]] = {"q/a": [[1]], "q/b": [[None, None]]}
    assert lists(rewards(MIXED, votes, normalise="step"), "advantage")[("q/b", 0)] == [0, 0]
    over_task = lists(rewards(MIXED, votes, normalise="task"), "advantage")
    assert over_task[("q/b", 0)] == pytest.approx([-1 / sqrt(2)] * 2)
    assert over_task[("q/a", 0)] == pytest.approx([sqrt(2)])


def test_only_tasks_inside_the_band_train_bounds_included() -> None:
    def task(name: str, won: int, of: int) -> dict[str, int]:
        return {f"{name}/{n}": 1 if n < won else -1 for n in range(of)}

    outcomes = task("none", 0, 5) | task("low", 1, 5) | task("high", 4, 5) | task("all", 5, 5) | task("near", 1, 6)
    found = rewards(outcomes, {name: [[1, -1]] for name in outcomes})
    assert set(found["task_id"]) == {"low", "high"}


def test_the_reward_is_that_of_outcome_and_votes_whatever_the_policy_trains_on() -> None:
    played, votes = episodes(MIXED), {"q/a": [[1, 1, -1]], "q/b": [[1, 1, 1]]}
    policy_rows = estimators.outcome_advantages(played, steps(votes))
    found = consistency.rewards(
        judgements(votes),
        policy_rows,
        estimators.accuracies(played),
        CreditConfig(reward_model_normalise="none"),
    )
    assert found.equals(rewards(MIXED, votes))


def test_nothing_to_judge_gives_an_empty_frame_of_the_same_columns() -> None:
    found = rewards({}, {}, normalise="task")
    assert found.height == 0
    assert found.schema == RM_REWARDS
