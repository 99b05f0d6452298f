"""An episode's score, which the estimators take for its outcome O.

    score = O, or with `outcome: reward` what the environment counted where it counted anything
    if score < 0      score = min(-0.6, score + 0.1 k)         `wrong` and `both`; `published` has k = -1 throughout
    if O > 0          score = score + 0.1 k                    `both`
    score = score - clip((L - (Lmax - B)) / B, 0, 1)           `overlong_max` Lmax, `overlong_buffer` B; no B: a step

k: tool rounds, the steps with at least one call that was run, whatever came of it. L: tokens from the first that was
sampled to the last, results of tools included; where every step has a prompt of its own, those of all replies.

`published` is the paper's code, whose scorer never learns of the rounds: every wrong answer gets -1.1, and no call
earns anything. `both` is equation 8 of the paper, `wrong` what its code means to do. A code answer that passes some of
its tests (`outcome: reward`) is neither wrong nor won and gains nothing.
Source: Yu et al., Demystifying Reinforcement Learning in Agentic Reasoning (2025); the penalty is that of DAPO (2025).
"""

from __future__ import annotations

import polars as pl

from rla.config.sections import ShapingConfig

BONUS, LARGEST_WRONG = 0.1, -0.6  # for a tool round, and the largest score of a wrong answer
ROUNDS_AS_PUBLISHED = -1


def scored_episodes(episodes: pl.DataFrame, config: ShapingConfig) -> pl.DataFrame:
    """The episodes with the column `score`. `episodes`: outcome; where `config.of_episodes`: also reward (nullable),
    tool_rounds and response_tokens, which `rla.store.frames.read_episodes` measures.
    """
    if not config.of_episodes:
        return episodes.with_columns(score=pl.col("outcome").cast(pl.Float64))
    return episodes.with_columns(score=with_bonus(base(config), config) + penalty(config))


def base(config: ShapingConfig) -> pl.Expr:
    """The score before all shaping."""
    sign = pl.col("outcome").cast(pl.Float64)
    return pl.coalesce(pl.col("reward").cast(pl.Float64), sign) if config.outcome == "reward" else sign


def with_bonus(score: pl.Expr, config: ShapingConfig) -> pl.Expr:
    """`score` with the bonus for tool rounds."""
    if config.tool_bonus == "none":
        return score
    rounds = pl.lit(ROUNDS_AS_PUBLISHED) if config.tool_bonus == "published" else pl.col("tool_rounds")
    raised = score + BONUS * rounds
    right = raised if config.tool_bonus == "both" else score
    wrong = pl.min_horizontal(raised, pl.lit(LARGEST_WRONG))
    return pl.when(score < 0).then(wrong).when(pl.col("outcome") > 0).then(right).otherwise(score)


def penalty(config: ShapingConfig) -> pl.Expr:
    """The penalty of a long reply: 0 or less."""
    if config.overlong_max == 0:
        return pl.lit(0.0)
    over = pl.col("response_tokens").cast(pl.Int64) - (config.overlong_max - config.overlong_buffer)
    if config.overlong_buffer == 0:
        return pl.when(over > 0).then(-1.0).otherwise(0.0)
    return -(over / config.overlong_buffer).clip(0.0, 1.0)
