"""Which tokens train, with which advantage, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from rla.errors import UserError
from rla.training.sequences import TrainingSequence, policy_sequences, reward_model_sequences, split_branches
from tests.unit.training.builders import reward, segment, step, trajectory

# Two steps of two tokens each in one segment; 13 was forced (one allowed id), 17 was unrestricted.
EPISODE = trajectory(
    "t",
    steps=[step(start=2, end=4), step(start=5, end=7)],
    segments=[segment(10, 11, (12, -0.5, [12, 20]), (13, 0.0, [13]), 14, (15, -0.7, [15, 16]), (17, -1.5, []), 18)],
)


def test_a_step_spreads_its_advantage_on_its_own_choices() -> None:
    [sequence] = policy_sequences([EPISODE], [reward("t", 0, 1.0), reward("t", 1, -2.0)])
    assert sequence == TrainingSequence(
        token_ids=[10, 11, 12, 13, 14, 15, 17],
        positions=[2, 5, 6],
        logp=[-0.5, -0.7, -1.5],
        allowed=[[12, 20], [15, 16], []],
        advantages=[1.0, -2.0, -2.0],
        replies=[0, 1, 1],
        owner="t",
    )


def test_a_step_without_reward_is_context_and_what_follows_the_last_choice_is_cut() -> None:
    [first] = policy_sequences([EPISODE], [reward("t", 0, 1.0)])
    assert (first.token_ids, first.positions) == ([10, 11, 12], [2])
    [second] = policy_sequences([EPISODE], [reward("t", 1, 1.0)])
    assert (len(second.token_ids), second.positions) == (7, [5, 6])


def test_forced_tokens_alone_make_no_sequence() -> None:
    forced = trajectory("t", steps=[step(start=1, end=3)], segments=[segment(1, (2, 0.0, [2]), (3, 0.0, [3]))])
    assert list(policy_sequences([forced], [reward("t", 0, 1.0)])) == []


def test_with_a_window_every_step_is_a_sequence_of_its_own() -> None:
    windowed = trajectory(
        "t",
        steps=[step(start=1, end=2), step(start=2, end=3, segment=1)],
        segments=[segment(1, (2, -0.1, [])), segment(1, 2, (3, -0.2, []))],
    )
    sequences = policy_sequences([windowed], [reward("t", 0, 1.0), reward("t", 1, 2.0)])
    assert [(one.positions, one.advantages) for one in sequences] == [([1], [1.0]), ([2], [2.0])]


SCORE = {
    "trajectory_id": "t",
    "step": 3,
    "prompt_ids": [1, 2, 3],
    "judgements": [
        {"token_ids": [4, 5], "logprobs": [-0.1, -0.2], "allowed": [[], []]},
        {"token_ids": [6], "logprobs": [-0.3], "allowed": [[6, 7]]},
    ],
}


def test_a_judgement_follows_its_prompt() -> None:
    rewards = [reward("t", 3, 0.5, judgement=0), reward("t", 3, -0.5, judgement=1)]
    [shared] = reward_model_sequences([SCORE], rewards)
    first, second = split_branches(shared, budget=0)
    assert first == TrainingSequence(
        token_ids=[1, 2, 3, 4, 5],
        positions=[3, 4],
        logp=[-0.1, -0.2],
        allowed=[[], []],
        advantages=[0.5, 0.5],
        replies=[0, 0],
        owner="t",
    )
    assert (second.token_ids, second.allowed, second.advantages) == ([1, 2, 3, 6], [[6, 7]], [-0.5])


def test_judgements_of_a_step_are_branches_of_one_prompt() -> None:
    rewards = [reward("t", 3, 0.5, judgement=0), reward("t", 3, -0.5, judgement=1)]
    [shared] = reward_model_sequences([SCORE], rewards)
    assert shared == TrainingSequence(
        token_ids=[1, 2, 3, 4, 5, 6],
        positions=[3, 4, 5],
        logp=[-0.1, -0.2, -0.3],
        allowed=[[], [], [6, 7]],
        advantages=[0.5, 0.5, -0.5],
        branches=((3, 5), (5, 6)),
        replies=[0, 0, 1],
        owner="t",
    )
    assert shared.predictors() == [2, 3, 2]


def test_max_samples_draws_steps_by_seed_and_whatever_the_order_of_the_rewards() -> None:
    episodes = [
        trajectory(str(n), steps=[step(start=1, end=2)], segments=[segment(1, (2, -0.1, []))]) for n in range(20)
    ]
    rewards = [reward(str(n), 0, float(n)) for n in range(20)]
    drawn = list(policy_sequences(episodes, rewards, max_samples=5, seed=1))
    assert len(drawn) == 5
    assert list(policy_sequences(episodes, rewards[::-1], max_samples=5, seed=1)) == drawn
    assert list(policy_sequences(episodes, rewards, max_samples=5, seed=2)) != drawn


def test_max_samples_keeps_the_judgements_of_a_step_together() -> None:
    scores = [{**SCORE, "step": n} for n in range(6)]
    rewards = [reward("t", n, float(n), judgement=j) for n in range(6) for j in range(2)]
    drawn = reward_model_sequences(scores, rewards, max_samples=2, seed=0)
    assert [len(sequence.branches) for sequence in drawn] == [2, 2]


@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ([reward("t", 0, math.nan)], "is nan"),
        ([reward("t", 0, 1.0), reward("t", 0, 1.0)], "there twice"),
        ([reward("t", 9, 1.0), reward("u", 0, 1.0)], "2 steps are not among the trajectories"),
    ],
)
def test_rewards_that_cannot_be_right_are_refused(rewards: list[dict[str, object]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        list(policy_sequences([EPISODE], rewards))


@pytest.mark.parametrize("allowed", [[3, 4], [3], [2, 2], [2, 3, 2]])
def test_a_token_outside_its_allowed_ids_or_twice_among_them_is_refused(allowed: list[int]) -> None:
    wrong = trajectory("t", steps=[step(start=1, end=2)], segments=[segment(1, (2, -0.1, allowed))])
    with pytest.raises(UserError, match="could not have been sampled"):
        list(policy_sequences([wrong], [reward("t", 0, 1.0)]))


def test_trajectories_are_read_as_they_come() -> None:
    """The first sequence is there before the second trajectory has been asked for."""
    read: list[int] = []

    def episodes() -> Iterator[dict[str, Any]]:
        for number in range(3):
            read.append(number)
            yield trajectory(str(number), steps=[step(start=1, end=2)], segments=[segment(1, (2, -0.1, []))])

    stream = policy_sequences(episodes(), [reward(str(number), 0, 1.0) for number in range(3)])
    assert next(stream).owner == "0"
    assert read == [0]
    assert [one.owner for one in stream] == ["1", "2"]


def odd(**changes: Any) -> dict[str, Any]:
    """An episode whose only segment has another column."""
    [own] = EPISODE["segments"]
    return EPISODE | {"segments": [own | changes]}


@pytest.mark.parametrize(
    ("episode", "message"),
    [
        (EPISODE | {"segments": []}, "names segment 0 of 0"),
        (EPISODE | {"steps": [step(start=2, end=4, segment=99)]}, "names segment 99 of 1"),
        (
            odd(logprobs=[0.0, 0.0, 0.7, 0.0, 0.0, -0.7, -1.5, 0.0]),
            "token 2 could not .* 0.7",
        ),
        (
            odd(logprobs=[0.0, 0.0, -math.inf, 0.0, 0.0, -0.7, -1.5, 0.0]),
            "token 2 could not .* -inf",
        ),
        (odd(logprobs=[0.0, 0.0, -0.5]), "different lengths"),
        (odd(token_ids=[-1, 11, 12, 13, 14, 15, 17, 18]), "a token id below 0"),
    ],
)
def test_an_episode_that_cannot_be_right_is_refused(episode: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        list(policy_sequences([episode], [reward("t", 0, 1.0)]))


def test_a_log_probability_that_rounding_lifted_trains_as_zero() -> None:
    lifted = odd(logprobs=[0.0, 0.0, 1e-6, 0.0, 0.0, -0.7, -1.5, 0.0])
    [sequence] = policy_sequences([lifted], [reward("t", 0, 1.0)])
    assert sequence.logp == [0.0]


def test_a_judgement_with_log_probabilities_one_short_is_refused() -> None:
    judgement = {"token_ids": [4, 5], "logprobs": [-0.1], "allowed": [[], []]}
    row = {"trajectory_id": "t", "step": 0, "prompt_ids": [1, 2], "judgements": [judgement]}
    with pytest.raises(UserError, match="t: token columns of different lengths"):
        list(reward_model_sequences([row], [reward("t", 0, 1.0, judgement=0)]))
