"""Weights worked out by hand for two trajectories of three replies."""

from __future__ import annotations

import pytest

from rla.training.losses import Aggregation, token_weights
from rla.training.sequences import TrainingSequence


def sequence(owner: str, replies: list[int]) -> TrainingSequence:
    count = len(replies)
    return TrainingSequence(
        token_ids=[5] * (count + 1),
        positions=list(range(1, count + 1)),
        logp=[-0.1] * count,
        allowed=[[]] * count,
        advantages=[1.0] * count,
        replies=replies,
        owner=owner,
    )


# a: a reply of 2 tokens and one of 1 in one segment, one of 1 in another; b: one reply of 4.
STEP = [sequence("a", [0, 0, 1]), sequence("a", [2]), sequence("b", [0, 0, 0, 0])]


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("token", [[1 / 8] * 3, [1 / 8], [1 / 8] * 4]),
        ("sequence", [[1 / 8, 1 / 8, 1 / 4], [1 / 4], [1 / 16] * 4]),
        ("trajectory", [[1 / 8] * 3, [1 / 8], [1 / 8] * 4]),
        ("fixed", [[1 / 40] * 3, [1 / 40], [1 / 40] * 4]),
        ("trajectory_fixed", [[1 / 20] * 3, [1 / 20], [1 / 20] * 4]),
    ],
)
def test_weights_of_a_worked_example(aggregation: Aggregation, expected: list[list[float]]) -> None:
    weights = token_weights(iter(STEP), aggregation, fixed_length=10)
    found = [weights(one) for one in STEP]
    assert [pytest.approx(row) for row in expected] == found
    if aggregation not in ("fixed", "trajectory_fixed"):
        assert sum(map(sum, found)) == pytest.approx(1.0)


def test_trajectories_count_alike_whatever_their_length() -> None:
    step = [sequence("a", [0]), sequence("b", [0, 0, 1])]
    assert [token_weights(step, "trajectory")(one) for one in step] == [[1 / 2], [pytest.approx(1 / 6)] * 3]


def test_a_sequence_without_numbers_is_one_reply() -> None:
    step = [sequence("a", []), sequence("b", [0, 1])]
    assert [token_weights(step, "sequence")(one) for one in step] == [[], [1 / 2, 1 / 2]]


# verl's names, and ours for the same; the fourth with the longest reply as length, which verl does not divide by the
# number of sequences.
PUBLISHED: dict[str, tuple[Aggregation, int, float]] = {
    "token-mean": ("token", 0, 0.6),
    "seq-mean-token-sum": ("trajectory_fixed", 1, 1.5),
    "seq-mean-token-mean": ("trajectory", 0, 0.0),
    "seq-mean-token-sum-norm": ("trajectory_fixed", 4, 0.375),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_aggregations(name: str) -> None:
    """Section 7.2 of the reference: trajectories whose tokens lose [1, 1, 1, 1] and [-1]."""
    aggregation, length, expected = PUBLISHED[name]
    step = [sequence("a", [0, 0, 1, 1]), sequence("b", [0])]
    weights = token_weights(step, aggregation, fixed_length=length)
    assert sum(weights(step[0])) - sum(weights(step[1])) == pytest.approx(expected)
