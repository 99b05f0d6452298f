"""Scores worked out by hand, and the figures that were taken from the published code of DemyAgent."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from rla.config.sections import CreditConfig, ShapingConfig
from rla.credit.advantages import both_advantages, policy_advantages, scored_episodes
from tests.unit.credit.builders import episodes, judgements, steps, values


def scores(
    outcomes: list[int],
    *,
    reward: list[float | None] | None = None,
    rounds: list[int] | None = None,
    tokens: list[int] | None = None,
    **shaping: Any,
) -> list[float]:
    frame = pl.DataFrame(
        {
            "outcome": pl.Series(outcomes, dtype=pl.Int8),
            "reward": pl.Series(reward or [None] * len(outcomes), dtype=pl.Float64),
            "tool_rounds": rounds or [0] * len(outcomes),
            "response_tokens": tokens or [0] * len(outcomes),
        }
    )
    return scored_episodes(frame, ShapingConfig(**shaping))["score"].to_list()


def test_the_defaults_leave_the_outcome_alone_and_need_nothing_else() -> None:
    frame = pl.DataFrame({"outcome": pl.Series([1, -1], dtype=pl.Int8)})
    assert scored_episodes(frame, ShapingConfig())["score"].to_list() == [1.0, -1.0]
    assert not ShapingConfig(spread="sample").of_episodes


def test_wrong_answers_gain_a_tenth_by_every_tool_round_up_to_a_bound() -> None:
    """Section 6.2 of the reference: k = 0, 1, 2, 3, 4 and 15."""
    found = scores([-1] * 6, rounds=[0, 1, 2, 3, 4, 15], tool_bonus="wrong")
    assert found == pytest.approx([-1.0, -0.9, -0.8, -0.7, -0.6, -0.6])
    assert scores([1, 1], rounds=[0, 3], tool_bonus="wrong") == [1.0, 1.0]


def test_by_the_papers_equation_right_answers_gain_too() -> None:
    assert scores([1, 1, -1], rounds=[0, 3, 2], tool_bonus="both") == pytest.approx([1.0, 1.3, -0.8])


def test_the_published_code_never_learns_of_the_rounds() -> None:
    assert scores([-1, -1, 1], rounds=[0, 5, 5], tool_bonus="published") == pytest.approx([-1.1, -1.1, 1.0])


def test_the_reward_of_the_environment_counts_where_there_is_one() -> None:
    """Of a code answer the share of passed tests, of an unreadable one no reward, of a math answer none either."""
    found = scores([1, -1, -1, -1, 1], reward=[1.0, 0.25, 0.0, None, None], outcome="reward")
    assert found == [1.0, 0.25, 0.0, -1.0, 1.0]


def test_an_answer_that_passes_some_tests_has_no_bonus() -> None:
    given: dict[str, Any] = {"reward": [0.25, 0.0, None, 1.0], "rounds": [3, 3, 3, 3], "outcome": "reward"}
    assert scores([-1, -1, -1, 1], tool_bonus="both", **given) == pytest.approx([0.25, 0.0, -0.7, 1.3])


def test_long_replies_cost_by_their_place_in_the_buffer() -> None:
    """Section 6.3 of the reference: the last 4,096 of 20,480 tokens."""
    found = scores([1] * 6, tokens=[100, 16_384, 17_408, 18_432, 20_480, 30_000], overlong=(16_384, 20_480))
    assert found == pytest.approx([1.0, 1.0, 0.75, 0.5, 0.0, 0.0])


def test_a_penalty_without_a_buffer_is_a_step() -> None:
    assert scores([1, 1], tokens=[10, 11], overlong=(10, 10)) == [1.0, 0.0]


def test_the_whole_range_as_intended_and_as_shipped() -> None:
    long: dict[str, Any] = {"tokens": [20_480], "overlong": (16_384, 20_480)}
    assert scores([-1], tool_bonus="wrong", **long) == pytest.approx([-2.0])
    assert scores([-1], tool_bonus="published", **long) == pytest.approx([-2.1])


# One group of four episodes of a step each: a right answer, wrong ones with 0, 1 and 4 tool rounds.
GROUP = episodes({"q/a": 1, "q/b": -1, "q/c": -1, "q/d": -1}).with_columns(
    tool_rounds=pl.Series([2, 0, 1, 4]), response_tokens=pl.lit(9), reward=pl.lit(None, dtype=pl.Float64)
)
STEPS = steps({name: [[]] for name in GROUP["trajectory_id"]})


def advantages(*, spread: str, **credit: Any) -> list[float]:
    config = CreditConfig(shaping=ShapingConfig(tool_bonus="wrong", spread=spread), **credit)  # type: ignore[arg-type]
    found = policy_advantages(scored_episodes(GROUP, config.shaping), STEPS, config)
    assert found["reward"].to_list() == pytest.approx([1, -1, -0.9, -0.6])
    assert found["outcome"].to_list() == [1, -1, -1, -1]
    return found["advantage"].to_list()


@pytest.mark.parametrize(
    "credit",
    [
        {"estimator": "outcome"},
        {"estimator": "integrated"},
        {"estimator": "integrated", "normalise": "task"},
    ],
)
@pytest.mark.parametrize(
    ("spread", "expected"),
    [
        ("sample", [1.47486, -0.67039, -0.56313, -0.24134]),
        ("population", [1.70302, -0.77410, -0.65024, -0.27868]),
    ],
)
def test_every_estimator_takes_the_score_and_the_spread(
    credit: dict[str, Any], spread: str, expected: list[float]
) -> None:
    """Section 7.1 of the reference."""
    assert advantages(spread=spread, **credit) == pytest.approx(expected, abs=1e-5)


def test_anchor_compares_episodes_by_score_and_places_by_wins() -> None:
    """All four are in the same place: G is 1, 0, 0, 0, whose sample deviation is 1/2."""
    config = CreditConfig(estimator="anchor", shaping=ShapingConfig(tool_bonus="wrong", spread="sample"))
    placed = STEPS.with_columns(place=pl.lit("start"))
    found = policy_advantages(scored_episodes(GROUP, config.shaping), placed, config)
    expected = [1.47486 + 1.5, -0.67039 - 0.5, -0.56313 - 0.5, -0.24134 - 0.5]
    assert found["advantage"].to_list() == pytest.approx(expected, abs=1e-5)
    assert found["reward"].to_list() == [1, 0, 0, 0]


@pytest.mark.parametrize("spread", ["population", "sample"])
def test_equal_scores_and_a_group_of_one_teach_nothing(spread: str) -> None:
    config = CreditConfig(estimator="outcome", shaping=ShapingConfig(spread=spread))  # type: ignore[arg-type]
    played = episodes({"won/a": 1, "won/b": 1, "lost/a": -1, "lost/b": -1, "once/a": 1})
    found = policy_advantages(played, steps({name: [[]] for name in played["trajectory_id"]}), config)
    assert found["advantage"].to_list() == [0.0] * 5


def credited(**band: float) -> dict[tuple[str, int], float]:
    """Two wrong answers of one task, with 0 and with 4 tool rounds: their outcomes are equal, their scores are not."""
    played = GROUP.filter(pl.col("trajectory_id").is_in(["q/b", "q/d"]))
    shaping = ShapingConfig(tool_bonus="wrong", spread="sample")
    config = CreditConfig(estimator="outcome", shaping=shaping, **band)  # type: ignore[arg-type]
    policy, _ = both_advantages(played, STEPS, judgements({}), config)
    return values(policy, "advantage")


def test_groups_of_equal_outcomes_train_only_where_the_band_lets_them() -> None:
    assert credited() == {("q/b", 0): 0.0, ("q/d", 0): 0.0}
    # scores -1 and -0.6: deviation 0.4 / sqrt(2), so -+ 0.70711
    assert credited(policy_band=(-1, 2)) == pytest.approx({("q/b", 0): -0.7071, ("q/d", 0): 0.7071}, abs=1e-4)


def test_the_reward_model_is_trained_on_the_outcome_itself() -> None:
    """Votes 1 and -1 about a lost episode: R = -1 + 0, whatever bonus the episode has."""
    votes = {"q/b": [[1, -1]], "q/a": [[1, 1]]}
    played = GROUP.filter(pl.col("trajectory_id").is_in(["q/a", "q/b"]))
    config = CreditConfig(shaping=ShapingConfig(tool_bonus="published"))
    policy, rm = both_advantages(played, steps(votes), judgements(votes), config)
    assert values(policy, "reward") == pytest.approx({("q/a", 0): 2.0, ("q/b", 0): -1.1})
    assert rm.filter(pl.col("trajectory_id") == "q/b")["reward"].to_list() == [-1.0, 1.0]
