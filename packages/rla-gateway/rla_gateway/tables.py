"""How agents talked to the policy: keys of `metrics.json`, a curve, and a table of the report."""

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

KEYS = ("agent_requests", "agent_conversations", "agent_rewritten")
COLUMNS = ["task_id", "steps.list.element.observation", "steps.list.element.segment"]


class AgentTables:
    """`agent_rewritten`: requests that begin a segment within a conversation, by other history or by a second reply."""

    figures = (Figure(key=KEYS[2], panel="Requests that rewrite history", tag="agent/rewritten", share=True),)

    def measure(self, trajectories: Path, config: Config, *, held_out: Sequence[Task]) -> dict[str, Any]:
        if config.env.name != NAME:
            return {}
        episodes = requests = opened = segments = 0
        for row in stream_rows(trajectories, "trajectories", COLUMNS):
            begun = {step["segment"]: step["observation"] for step in reversed(row["steps"])}
            episodes, requests, segments = episodes + 1, requests + len(row["steps"]), segments + len(begun)
            opened += sum(number == 0 or text.startswith(f"{OPENED}\n") for number, text in begun.items())
        shares = (requests / max(1, episodes), opened / max(1, episodes), (segments - opened) / max(1, requests))
        return dict(zip(KEYS, shares, strict=True))

    def tables(self, summary: RunSummary) -> list[Table]:
        cells = tuple(
            (str(row["iteration"]), number(row[KEYS[0]], 1), number(row[KEYS[1]], 1), percent(row[KEYS[2]]))
            for row in filter(lambda row: row.get(KEYS[0]), summary.iterations)
        )
        columns = ("iteration", "requests of an episode", "conversations", "rewrite history")
        return [Table(title="Agents", columns=columns, rows=cells)]
