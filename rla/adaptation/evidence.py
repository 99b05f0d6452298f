"""What is known of a task that should change: its episodes, and what the reward model wrote against their steps.

Read from the trajectories and scores shards for the chosen tasks alone; no token ids are read. Episodes that the
environment broke are left out, as they are from accuracies.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla.store.reading import stream_rows
from rla.store.records import StopReason

EPISODE = (
    "task_id",
    "trajectory_id",
    "instruction",
    "outcome",
    "stop_reason",
    "steps.list.element.observation",
    "steps.list.element.action",
    "final_observation",
    "screens",  # which tells episodes with pictures
)
JUDGED = (
    "task_id",
    "trajectory_id",
    "step",
    "judgements.list.element.score",
    "judgements.list.element.text",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """`episodes`: trajectory rows with the columns of EPISODE. `against`: trajectory id -> step -> what the reward
    model wrote where it scored -1.
    """

    episodes: list[Mapping[str, Any]] = field(default_factory=list)
    against: dict[str, dict[int, list[str]]] = field(default_factory=dict)

    def failed(self) -> list[Mapping[str, Any]]:
        return [episode for episode in self.episodes if episode["outcome"] != 1]

    def rejections(self) -> list[str]:
        """What was written against the steps of failed episodes, in their order."""
        found = [self.against.get(episode["trajectory_id"], {}) for episode in self.failed()]
        return [text for steps in found for step in sorted(steps) for text in steps[step]]


def read_evidence(tasks: Collection[str], *, trajectories: Path, scores: Path) -> dict[str, Evidence]:
    """task id -> evidence, for every task of `tasks`, that of an unplayed one empty."""
    found = {task: Evidence() for task in tasks}
    if not found:
        return found
    for row in stream_rows(trajectories, "trajectories", EPISODE, keys=found.keys()):
        if row["stop_reason"] != StopReason.ENV_ERROR:
            found[row["task_id"]].episodes.append(row)
    for row in stream_rows(scores, "scores", JUDGED, keys=found.keys()):
        texts = [judgement["text"] for judgement in row["judgements"] if judgement["score"] == -1]
        if texts:
            found[row["task_id"]].against.setdefault(row["trajectory_id"], {})[row["step"]] = texts
    return found
