"""What a step's outcome says beside those of other trajectories in the same place, and judges that are paid by it."""

from __future__ import annotations

import polars as pl
import pytest

from rla.config.sections import CreditConfig
from rla.credit.consistency import differences
from rla.credit.estimators import both_advantages
from tests.unit.credit.builders import Votes, episodes, judgements, lists, steps, values

PLACES = {"q/a": ["door", "desk"], "q/b": ["door", "door"], "q/c": ["door", "shelf"]}
OUTCOMES = {"q/a": 1, "q/b": -1, "q/c": -1}


def placed(votes: dict[str, list[Votes]]) -> pl.DataFrame:
    flat = [place for name in votes for place in PLACES[name]]
    return steps(votes).with_columns(place=pl.Series(flat, dtype=pl.String))


def test_a_win_counts_as_far_as_the_others_did_not_win_there() -> None:
    """door: a won and of b, c nobody did: 1. b lost, and one of a, c won: -1/2; likewise c. b came there twice."""
    found = values(differences(episodes(OUTCOMES), placed({name: [[1], [1]] for name in OUTCOMES})), "difference")
    assert found == pytest.approx(
        {("q/a", 0): 1.0, ("q/a", 1): 0, ("q/b", 0): -0.5, ("q/b", 1): -0.5, ("q/c", 0): -0.5, ("q/c", 1): 0}
    )


def test_other_tasks_places_are_others() -> None:
    played = episodes({"q/a": 1, "r/a": -1})
    frame = steps({"q/a": [[1]], "r/a": [[1]]}).with_columns(place=pl.lit("door"))
    assert differences(played, frame)["difference"].to_list() == [0.0, 0.0]


def test_a_judge_is_paid_for_telling_choices_apart() -> None:
    """lambda = 1/2. a at the door: D = 1, S = 1: R = 3/2. b: D = -1/2, mean S = 0 and 1: R = -1/2 and -1/4.
    c: D = -1/2, mean S = -1: R = -3/4.

    What was done at the desk and at the shelf is compared with nothing and does not train.
    """
    votes: dict[str, list[Votes]] = {"q/a": [[1], [1]], "q/b": [[1, -1], [1]], "q/c": [[-1], [-1]]}
    config = CreditConfig(
        step_weight=0.5, reward_model_outcome="place", reward_model_normalise="none", reward_model_band=(0.0, 0.8)
    )
    _, rm = both_advantages(episodes(OUTCOMES), placed(votes), judgements(votes), config)
    assert lists(rm, "reward") == {
        ("q/a", 0): [1.5],
        ("q/b", 0): [-0.5, 0.5],
        ("q/b", 1): [-0.25],
        ("q/c", 0): [0.75],
    }


def test_a_judgement_that_does_not_parse_still_gets_least() -> None:
    votes: dict[str, list[Votes]] = {"q/a": [[1], [1]], "q/b": [[None, -1], [1]], "q/c": [[-1], [-1]]}
    config = CreditConfig(step_weight=0.5, reward_model_outcome="place", reward_model_normalise="none")
    _, rm = both_advantages(episodes(OUTCOMES), placed(votes), judgements(votes), config)
    found = lists(rm, "reward")
    assert found["q/b", 0][0] == -1.5 == rm["reward"].min()
