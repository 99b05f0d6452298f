"""The use of tools in the episodes of a trajectory shard, as a data frame with a row for each episode."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from rla.store.frames import NOT_RUN
from rla.store.reading import listed_parts, read_part
from rla.store.records import StopReason
from rla_programs.tool.tool_use import had_tools

RAN = "ok"  # status of a call that ran without an error
READ = (
    "kind",
    "stop_reason",
    *(f"steps.list.element.{name}" for name in ("truncated", "start", "end")),
    "segments.list.element.logprobs",
    "calls",
)
TOOL_EPISODES = pl.Schema(
    {
        "kind": pl.String,
        "steps": pl.UInt32,
        "truncated": pl.UInt32,
        "tokens": pl.Int64,
        "surprisal": pl.Float64,
        "calls": pl.UInt32,
        "executed": pl.UInt32,
        "ran": pl.UInt32,
    }
)


def read_tool_episodes(trajectories: Path) -> pl.DataFrame:
    """Columns of `TOOL_EPISODES`: numbers of steps, replies that were cut, sampled tokens and calls; calls that were
    executed, and that ran without an error; and the sum of the negative log-probabilities of the tokens. Episodes that
    the environment broke, or that had no tools, have no row. Raises UserError for a shard that is incomplete or
    damaged.
    """
    frames = [pl.DataFrame(schema=TOOL_EPISODES)]
    for path, entry in listed_parts(trajectories, "trajectories").items():
        if had_tools(path, entry):
            table = read_part(path, READ, kind="trajectories", entry=entry)
            frames.append(_counted(pl.DataFrame(pl.from_arrow(table))))
    return pl.concat(frames)


def _counted(raw: pl.DataFrame) -> pl.DataFrame:
    def of_steps(name: str) -> pl.Expr:
        return pl.col("steps").list.eval(pl.element().struct.field(name)).list.sum()

    nested = pl.element().struct.field("logprobs").cast(pl.List(pl.Float64)).list.sum()
    status = pl.element().struct.field("status")
    return (
        raw.filter(pl.col("calls").is_not_null(), pl.col("stop_reason") != StopReason.ENV_ERROR.value)
        .select(
            "kind",
            steps=pl.col("steps").list.len(),
            truncated=of_steps("truncated"),
            tokens=of_steps("end") - of_steps("start"),
            surprisal=-pl.col("segments").list.eval(nested).list.sum(),
            calls=pl.col("calls").list.len(),
            executed=pl.col("calls").list.eval(~status.is_in(NOT_RUN)).list.sum(),
            ran=pl.col("calls").list.eval(status == RAN).list.sum(),
        )
        .cast(TOOL_EPISODES)
    )
