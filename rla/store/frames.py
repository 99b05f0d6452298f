"""Trajectories and scores as the data frames that credit and diagnostics take.

A file of its own, because polars starts threads, and stages are forked from a process that must have one.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import polars as pl
import pyarrow as pa

from rla.store.reading import read_table
from rla.store.records import Status, StopReason

EPISODE = ("trajectory_id", "task_id", "slot", "kind", "status", "iteration", "rollout", "outcome", "stop_reason")
KEYS = ("trajectory_id", "task_id", "step")
JUDGEMENTS = pl.Schema(
    {
        "trajectory_id": pl.String,
        "task_id": pl.String,
        "step": pl.Int32,
        "judgement": pl.Int32,
        "score": pl.Int8,
        "truncated": pl.Boolean,
        "tokens": pl.UInt32,
    }
)


class IterationFrames(NamedTuple):
    """`steps` have their `mean_score`, which is null without a valid vote; `judgements` have a row per vote."""

    episodes: pl.DataFrame
    steps: pl.DataFrame
    judgements: pl.DataFrame


def read_episodes(
    trajectories: Path, *, texts: bool = False, measured: bool = False
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`episode_frames` of a trajectories shard, of which only the columns that they need are read."""
    columns = [*EPISODE, *(["final_observation"] if texts else []), *(["reward", "calls"] if measured else [])]
    table = read_table(trajectories, "trajectories", [*columns, "steps", "places"])
    return episode_frames(table, texts=texts, measured=measured)


def episode_frames(
    trajectories: pa.Table, *, texts: bool = False, measured: bool = False
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(episodes, their steps with the place of each), without episodes that ended because their environment failed.

    A step's place is the digest of the state that it was taken in, or the observation if the environment gives no
    digest. `texts`: with the last observations. `measured`: with the columns of `measures` (`rla.credit.advantages`).
    """
    raw = pl.DataFrame(pl.from_arrow(trajectories)).filter(pl.col("stop_reason") != StopReason.ENV_ERROR.value)
    played = (
        raw.filter(pl.col("steps").list.len() > 0)
        .select(
            "trajectory_id",
            "task_id",
            step=pl.int_ranges(pl.col("steps").list.len(), dtype=pl.Int32),
            observation=pl.col("steps").list.eval(pl.element().struct.field("observation")),
            place=pl.coalesce(  # an episode without places: one null per step
                pl.col("places").cast(pl.List(pl.String)),
                pl.col("steps").list.eval(pl.lit(None, dtype=pl.String)),
            ),
        )
        .explode("step", "observation", "place")
        .select("trajectory_id", "task_id", "step", place=pl.coalesce("place", "observation"))
    )
    columns = [*EPISODE, *(["final_observation"] if texts else [])]
    known = _measures() if measured else {}
    return raw.select(*columns, n_steps=pl.col("steps").list.len(), **known), played


NOT_RUN = ("malformed", "unknown", "excess", "absent")  # statuses of calls that no tool has run


def _measures() -> dict[str, pl.Expr]:
    """Expressions for `reward`, `tool_rounds` (steps of which a call was run) and `response_tokens` of an episode.

    A segment's tokens count from the first sampled one to the last, with the tool results in between and without the
    prompt. The spans of the steps give the number, so no token is read.
    """
    span = pl.element().struct
    of_segment = pl.col("steps").list.eval(
        pl.when(span.field("segment") != span.field("segment").shift(1, fill_value=-1))
        .then(span.field("end") - span.field("start"))
        .otherwise(span.field("end") - span.field("end").shift(1))
    )
    ran = span.field("step").filter(~span.field("status").is_in(NOT_RUN))
    return {
        "reward": pl.col("reward"),
        "tool_rounds": pl.col("calls").list.eval(ran.n_unique()).list.first().fill_null(0),
        "response_tokens": of_segment.list.sum().cast(pl.Int64),
    }


def read_judgements(scores: Path | None) -> pl.DataFrame:
    """`_judgement_frame` of a scores shard; no rows if there is none."""
    if scores is None:
        return pl.DataFrame(schema=JUDGEMENTS)
    return _judgement_frame(read_table(scores, "scores", [*KEYS, "judgements"]))


def _judgement_frame(scores: pa.Table) -> pl.DataFrame:
    """One row per judgement, columns of `JUDGEMENTS`; `tokens`: the number that was sampled."""
    judged = pl.DataFrame(pl.from_arrow(scores))
    votes = judged.filter(pl.col("judgements").list.len() > 0)
    return (
        votes.with_columns(judgement=pl.int_ranges(pl.col("judgements").list.len(), dtype=pl.Int32))
        .explode("judgements", "judgement")
        .select(
            *KEYS,
            "judgement",
            score=pl.col("judgements").struct.field("score"),
            truncated=pl.col("judgements").struct.field("truncated"),
            tokens=pl.col("judgements").struct.field("token_ids").list.len(),
        )
    )


def read_iteration(trajectories: Path, scores: Path, *, texts: bool = False, measured: bool = False) -> IterationFrames:
    """`with_scores` of two shards."""
    found = read_episodes(trajectories, texts=texts, measured=measured)
    return with_scores(*found, read_table(scores, "scores", [*KEYS, "mean_score", "judgements"]))


def with_scores(episodes: pl.DataFrame, played: pl.DataFrame, scores: pa.Table) -> IterationFrames:
    """The frames of `episode_frames` with the scores and votes of the reward model."""
    means = pl.DataFrame(pl.from_arrow(scores.select([*KEYS, "mean_score"])))
    steps = played.join(means, on=KEYS, how="left", maintain_order="left")  # null if a step was not judged
    judgements = _judgement_frame(scores).join(episodes, on="trajectory_id", how="semi", maintain_order="left")
    return IterationFrames(episodes, steps, judgements)


def training_episodes(episodes: pl.DataFrame, verdicts: Path) -> pl.DataFrame:
    """Active episodes, and pending ones whose task was accepted."""
    decided = pl.DataFrame(pl.from_arrow(read_table(verdicts, "verdicts", ["task_id", "accepted"])))
    accepted = decided.filter(pl.col("accepted"))["task_id"]
    active = pl.col("status") == Status.ACTIVE.value
    return episodes.filter(active | pl.col("task_id").is_in(accepted.implode()))
