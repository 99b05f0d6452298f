"""How agents talked to the policy: keys of `metrics.json`, their curve, and a table of the report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.metrics.custom import Figure
from rla.report.collect import RunSummary
from rla.report.tables import Table, number, percent
from rla.store.reading import stream_rows
from rla.store.records import Task
from rla_gateway.conversations import OPENED
from rla_gateway.params import NAME

COLUMNS = ["task_id", "steps.list.element.observation", "steps.list.element.segment"]


class AgentTables:
    """Per episode: requests and conversations; the share of requests that rewrote the history before them, or that
    continued a reply a second time.
    """

    figures = (Figure(key="agent_rewritten", panel="Requests that rewrite history", tag="agent/rewritten", share=True),)

    def measure(self, trajectories: Path, config: Config, *, held_out: Sequence[Task]) -> dict[str, Any]:
        if config.env.name != NAME:
            return {}
        episodes = requests = conversations = rewritten = 0
        for row in stream_rows(trajectories, "trajectories", COLUMNS):
            begun, steps = set[int](), row["steps"]
            episodes += 1
            requests += len(steps)
            for step in steps:
                if step["segment"] not in begun:
                    first = not begun or step["observation"].startswith(f"{OPENED}\n")
                    conversations += first
                    rewritten += not first
                    begun.add(step["segment"])
        return {
            "agent_requests": requests / episodes if episodes else None,
            "agent_conversations": conversations / episodes if episodes else None,
            "agent_rewritten": rewritten / requests if requests else None,
        }

    def tables(self, summary: RunSummary) -> list[Table]:
        cells = tuple(
            (
                str(row["iteration"]),
                number(row["agent_requests"], 1),
                number(row["agent_conversations"], 1),
                percent(row["agent_rewritten"]),
            )
            for row in summary.iterations
            if row.get("agent_requests") is not None
        )
        note = "a request that rewrites history begins a new segment: summaries, dropped turns, other tools"
        columns = ("iteration", "requests", "conversations", "rewrite history")
        return [Table(title="Agents", columns=columns, rows=cells, note=note)]
