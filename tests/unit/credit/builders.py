"""Tiny frames written as they read: outcomes per trajectory, votes per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

Votes = Sequence[int | None]


def episodes(outcomes: Mapping[str, int], *, status: str = "active", n_steps: int = 1) -> pl.DataFrame:
    """`{"q/a": 1}`: trajectory q/a of task q was won."""
    return pl.DataFrame(
        [
            {
                "trajectory_id": name,
                "task_id": name.split("/")[0],
                "slot": name.split("/")[0],
                "status": status,
                "iteration": 1,
                "rollout": number,
                "outcome": outcome,
                "n_steps": n_steps,
            }
            for number, (name, outcome) in enumerate(outcomes.items())
        ],
        schema={
            "trajectory_id": pl.String,
            "task_id": pl.String,
            "slot": pl.String,
            "status": pl.String,
            "iteration": pl.Int32,
            "rollout": pl.Int32,
            "outcome": pl.Int8,
            "n_steps": pl.Int32,
        },
    )


def steps(votes: Mapping[str, Sequence[Votes]]) -> pl.DataFrame:
    """`{"q/a": [[1, -1], [None]]}`: step 0 has mean score 0, step 1 no valid vote."""
    return pl.DataFrame(
        [
            {
                "trajectory_id": name,
                "task_id": name.split("/")[0],
                "step": step,
                "mean_score": mean_of(of_step),
            }
            for name, of_trajectory in votes.items()
            for step, of_step in enumerate(of_trajectory)
        ],
        schema={
            "trajectory_id": pl.String,
            "task_id": pl.String,
            "step": pl.Int32,
            "mean_score": pl.Float64,
        },
    )


def judgements(votes: Mapping[str, Sequence[Votes]]) -> pl.DataFrame:
    """One row per vote of the same mapping."""
    return pl.DataFrame(
        [
            {
                "trajectory_id": name,
                "task_id": name.split("/")[0],
                "step": step,
                "judgement": number,
                "score": score,
                "truncated": False,
            }
            for name, of_trajectory in votes.items()
            for step, of_step in enumerate(of_trajectory)
            for number, score in enumerate(of_step)
        ],
        schema={
            "trajectory_id": pl.String,
            "task_id": pl.String,
            "step": pl.Int32,
            "judgement": pl.Int32,
            "score": pl.Int8,
            "truncated": pl.Boolean,
        },
    )


def mean_of(votes: Votes) -> float | None:
    valid = [vote for vote in votes if vote is not None]
    return sum(valid) / len(valid) if valid else None


def values(frame: pl.DataFrame, column: str) -> dict[tuple[str, int], float]:
    """(trajectory, step) -> the column."""
    return {(row["trajectory_id"], row["step"]): row[column] for row in frame.iter_rows(named=True)}


def lists(frame: pl.DataFrame, column: str) -> dict[tuple[str, int], list[float]]:
    """(trajectory, step) -> the column over the votes, in order."""
    found: dict[tuple[str, int], list[float]] = {}
    for row in frame.iter_rows(named=True):
        found.setdefault((row["trajectory_id"], row["step"]), []).append(row[column])
    return found
