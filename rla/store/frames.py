"""Trajectory and scores shards as the data frames that credit and diagnostics take."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from rla.store.reading import read_table
from rla.store.records import Status, StopReason

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


def read_episodes(trajectories: Path, *, texts: bool = False) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(episodes, their steps with the place of each); episodes that the environment broke are left out of all credit.

    A step's place is the digest of the state that it was taken in, or what was observed there where the environment
    does not say. `texts`: with the last observations.
    """
    columns = ["trajectory_id", "task_id", "slot", "kind", "status", "iteration", "rollout", "outcome", "stop_reason"]
    columns += ["final_observation"] if texts else []
    table = read_table(trajectories, "trajectories", [*columns, "steps", "places"])
    raw = pl.DataFrame(pl.from_arrow(table)).filter(pl.col("stop_reason") != StopReason.ENV_ERROR.value)
    played = (
        raw.filter(pl.col("steps").list.len() > 0)
        .select(
            "trajectory_id",
            "task_id",
            step=pl.int_ranges(pl.col("steps").list.len(), dtype=pl.Int32),
            observation=pl.col("steps").list.eval(pl.element().struct.field("observation")),
            place=pl.coalesce(  # where an episode has none: as many nulls as it has steps
                pl.col("places").cast(pl.List(pl.String)),
                pl.col("steps").list.eval(pl.lit(None, dtype=pl.String)),
            ),
        )
        .explode("step", "observation", "place")
        .select("trajectory_id", "task_id", "step", place=pl.coalesce("place", "observation"))
    )
    return raw.select(*columns, n_steps=pl.col("steps").list.len()), played


def with_scores(played: pl.DataFrame, scores: Path) -> pl.DataFrame:
    """The steps with their mean score, null where they were not judged."""
    means = pl.DataFrame(pl.from_arrow(read_table(scores, "scores", [*KEYS, "mean_score"])))
    return played.join(means, on=KEYS, how="left", maintain_order="left")


def read_judgements(scores: Path | None) -> pl.DataFrame:
    """One row per judgement, columns of `JUDGEMENTS`; `tokens`: how many were sampled. None: no rows."""
    if scores is None:
        return pl.DataFrame(schema=JUDGEMENTS)
    judged = pl.DataFrame(pl.from_arrow(read_table(scores, "scores", [*KEYS, "judgements"])))
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


def read_iteration(
    trajectories: Path, scores: Path, *, texts: bool = False
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """(episodes, steps, judgements); those of episodes that the environment broke are in none of the three."""
    episodes, played = read_episodes(trajectories, texts=texts)
    judgements = read_judgements(scores)
    steps = with_scores(played, scores)
    return episodes, steps, judgements.join(episodes, on="trajectory_id", how="semi", maintain_order="left")


def training_episodes(episodes: pl.DataFrame, verdicts: Path) -> pl.DataFrame:
    """Active episodes, and pending ones whose task was accepted."""
    decided = pl.DataFrame(pl.from_arrow(read_table(verdicts, "verdicts", ["task_id", "accepted"])))
    accepted = decided.filter(pl.col("accepted"))["task_id"]
    active = pl.col("status") == Status.ACTIVE.value
    return episodes.filter(active | pl.col("task_id").is_in(accepted.implode()))
