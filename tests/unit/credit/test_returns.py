"""R_i = gamma_O^(T-1-i) O + lambda sum_k gamma^(k-i) S_k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rla.credit import integrated, returns
from rla.credit.normalise import POLICY_REWARDS
from tests.unit.credit.builders import Votes, episodes, steps, values

VOTES: dict[str, list[Votes]] = {"q/a": [[1], [-1], [1]], "q/b": [[-1], [None]]}
OUTCOMES = {"q/a": 1, "q/b": -1}


def seen(votes: Mapping[str, Sequence[Votes]], places: Mapping[str, str]) -> pl.DataFrame:
    """`steps` with what was seen: {"q/a": "xy"} was in place x, then in y."""
    frame = steps(votes)
    known = [places[row["trajectory_id"]][row["step"]] for row in frame.iter_rows(named=True)]
    return frame.with_columns(pl.Series("place", known, dtype=pl.String))


def test_a_worked_example() -> None:
    """gamma = 1/2, gamma_O = 1/2, lambda = 2.

    a, T = 3, S = 1, -1, 1: to go 1 - 1/2 + 1/4 = 3/4, -1 + 1/2 = -1/2, 1; outcome 1/4, 1/2, 1.
    b, T = 2, S = -1, nothing: to go -1, 0; outcome -1/2, -1.
    """
    found = returns.advantages(episodes(OUTCOMES), steps(VOTES), step_weight=2.0, discount=0.5, outcome_discount=0.5)
    rewards = {("q/a", 0): 1.75, ("q/a", 1): -0.5, ("q/a", 2): 3.0, ("q/b", 0): -2.5, ("q/b", 1): -1.0}
    assert values(found, "reward") == pytest.approx(rewards)
    # Two members: the better has +1, the worse -1; index 2 has one member.
    advantages = {("q/a", 0): 1.0, ("q/a", 1): 1.0, ("q/a", 2): 0.0, ("q/b", 0): -1.0, ("q/b", 1): -1.0}
    assert values(found, "advantage") == pytest.approx(advantages)
    assert found.schema == POLICY_REWARDS


def test_without_discounts_every_later_judgement_counts_alike() -> None:
    found = returns.advantages(episodes(OUTCOMES), steps(VOTES), step_weight=1.0, discount=1.0)
    assert [values(found, "reward")[("q/a", index)] for index in range(3)] == [2.0, 1.0, 2.0]


@given(
    outcomes=st.lists(st.sampled_from([1, -1]), min_size=1, max_size=4),
    data=st.data(),
    weight=st.floats(0, 2),
    normalise=st.sampled_from(["step", "task", "place"]),
)
def test_without_later_judgements_it_is_the_integrated_reward(
    outcomes: list[int], data: st.DataObject, weight: float, normalise: integrated.Normalise
) -> None:
    of_step = st.lists(st.sampled_from([1, -1, None]), min_size=1, max_size=3)
    named = {f"q/{number}": outcome for number, outcome in enumerate(outcomes)}
    votes = {name: data.draw(st.lists(of_step, min_size=1, max_size=4)) for name in named}
    played = seen(votes, {name: data.draw(st.text("xy", min_size=4, max_size=4)) for name in named})
    plain = integrated.advantages(episodes(named), played, step_weight=weight, normalise=normalise)
    found = returns.advantages(episodes(named), played, step_weight=weight, discount=0.0, normalise=normalise)
    assert values(found, "reward") == pytest.approx(values(plain, "reward"))
    assert values(found, "advantage") == pytest.approx(values(plain, "advantage"))


def test_the_shorter_of_two_wins_is_worth_more() -> None:
    votes: dict[str, list[Votes]] = {"q/a": [[None]], "q/b": [[None], [None]]}
    found = returns.advantages(
        episodes({"q/a": 1, "q/b": 1}), steps(votes), step_weight=1.0, discount=0.0, outcome_discount=0.5
    )
    assert values(found, "reward") == {("q/a", 0): 1.0, ("q/b", 0): 0.5, ("q/b", 1): 1.0}
    assert values(found, "advantage") == {("q/a", 0): 1.0, ("q/b", 0): -1.0, ("q/b", 1): 0.0}


def test_by_place_judgements_are_centred_where_they_were_made_and_no_spread_is_blown_up() -> None:
    """gamma = 1/2, gamma_O = 1/2, lambda = 1/10.

    To go: a 3/4, -1/2, 1 in x, y, z; b -1 in x, nothing in y. Place x: mean -1/8, a 7/8 above, b as far below. In y
    only a is followed by judgements, in z nobody else was: both add 0. O is +1, -1: A_O is +1, -1, times 1/4, 1/2, 1
    of a and 1/2, 1 of b.
    """
    played = seen(VOTES, {"q/a": "xyz", "q/b": "xy"})
    found = returns.advantages(
        episodes(OUTCOMES), played, step_weight=0.1, discount=0.5, outcome_discount=0.5, normalise="place"
    )
    assert values(found, "advantage") == pytest.approx(
        {
            ("q/a", 0): 1 / 4 + 0.1 * 7 / 8,
            ("q/a", 1): 1 / 2,
            ("q/a", 2): 1.0,
            ("q/b", 0): -1 / 2 - 0.1 * 7 / 8,
            ("q/b", 1): -1.0,
        }
    )
    assert values(found, "reward")[("q/a", 0)] == pytest.approx(1 / 4 + 0.1 * 3 / 4)


def test_no_episodes_give_an_empty_frame_of_the_same_columns() -> None:
    found = returns.advantages(episodes({}), steps({}), step_weight=1.0, discount=0.5)
    assert (found.height, found.schema) == (0, POLICY_REWARDS)
