"""How a policy uses its tools, over all episodes and by kind of task (the data source of a question).

    tool_calls             mean calls of an episode
    tool_calls_ran         share of all calls that ran without an error: status `ok`
    tool_success           the same for executed calls only. Calls that cannot be parsed, name an unknown tool, or are
                           one too many never reach the interpreter
    tool_no_call           share of episodes without a call
    tool_round_tokens      mean sampled tokens of a reply: a round is a reply and the results of its calls
    tool_truncated         share of replies that max_tokens cut
    tool_sampled_entropy   mean over sampled tokens of -log p(token) as it was sampled, in nats: an estimate of the mean
                           entropy, because the expectation of the surprisal of a sample is the entropy

Strong runs think long and call seldom, with calls that run; weak ones call often. A figure is null if there is nothing
to count. Source of `tool_calls`, `tool_success` and `tool_round_tokens`: Demystifying RL in Agentic Reasoning (2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.metrics.custom import Figure
from rla.store.reading import Entry, read_part

if TYPE_CHECKING:
    import polars as pl

SUMMED = ("steps", "truncated", "tokens", "surprisal", "calls", "executed", "ran")
TOOL_FIGURES = {
    "tool_calls": "calls of an episode",
    "tool_calls_ran": "calls that ran",
    "tool_success": "executed calls without an error",
    "tool_no_call": "episodes without a call",
    "tool_round_tokens": "tokens of a round",
    "tool_truncated": "replies cut",
    "tool_sampled_entropy": "sampled entropy",
}
FOLLOWED = (
    Figure(key="tool_calls", panel="Calls of an episode", tag="tools/calls of an episode"),
    Figure(key="tool_calls_ran", panel="Calls that ran", tag="tools/share of calls that ran", share=True),
    Figure(
        key="tool_success",
        panel="Executed calls without an error",
        tag="tools/share of executed calls without an error",
        share=True,
    ),
    Figure(key="tool_no_call", share=True),
    Figure(key="tool_round_tokens", panel="Tokens of a round", tag="tools/tokens of a round"),
    Figure(key="tool_truncated", share=True),
    Figure(key="tool_sampled_entropy", tag="tools/sampled entropy"),
)


def had_tools(part: Path, entry: Entry) -> bool:
    """Whether an episode in a part of a shard had tools. Raises UserError if the part is damaged."""
    calls = read_part(part, ["calls"], kind="trajectories", entry=entry)["calls"]
    return bool(calls.null_count < len(calls))


def tool_figures(episodes: pl.DataFrame) -> dict[str, float | None]:
    """All figures of rows of `rla_programs.tool.tool_frames.TOOL_EPISODES`; empty without a row."""
    if episodes.is_empty():
        return {}
    count = len(episodes)
    sums = {name: float(episodes[name].sum()) for name in SUMMED}
    return {
        "tool_calls": sums["calls"] / count,
        "tool_calls_ran": ratio(sums["ran"], sums["calls"]),
        "tool_success": ratio(sums["ran"], sums["executed"]),
        "tool_no_call": float((episodes["calls"] == 0).sum()) / count,
        "tool_round_tokens": ratio(sums["tokens"], sums["steps"]),
        "tool_truncated": ratio(sums["truncated"], sums["steps"]),
        "tool_sampled_entropy": ratio(sums["surprisal"], sums["tokens"]),
    }


def tool_figures_by_kind(episodes: pl.DataFrame) -> dict[str, Any]:
    """`tool_figures`, and under `tool_by_kind` those of each kind of task; empty if no episode had tools."""
    if episodes.is_empty():
        return {}
    kinds = sorted(episodes["kind"].unique())
    of_kind = {kind: tool_figures(episodes.filter(episodes["kind"] == kind)) for kind in kinds}
    return {**tool_figures(episodes), "tool_by_kind": of_kind}


def given_tool_figures(calls: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """The figures of transcripts that report only their calls, each given as its kind and number of calls. The keys are
    those of `tool_figures_by_kind`; figures that need tokens or the outcomes of calls are null.
    """

    def figures(counts: Sequence[int]) -> dict[str, float | None]:
        told = {"tool_calls": ratio(sum(counts), len(counts)), "tool_no_call": ratio(counts.count(0), len(counts))}
        return dict.fromkeys(TOOL_FIGURES) | told

    kinds = sorted({kind for kind, _ in calls})
    of_kind = {kind: figures([count for own, count in calls if own == kind]) for kind in kinds}
    return {**figures([count for _, count in calls]), "tool_by_kind": of_kind} if calls else {}


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
