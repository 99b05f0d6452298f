"""An episode as it is shown."""

from __future__ import annotations

from typing import Any

from rla_study.showing.episodes import ShownEpisode


def shown_episode(**changes: Any) -> ShownEpisode:
    """A lost episode of a maze, without steps unless `changes` has some."""
    fields: dict[str, Any] = {
        "trajectory_id": "abc",
        "task_id": "t1",
        "slot": "t1",
        "kind": "maze",
        "status": "active",
        "iteration": 3,
        "rollout": 2,
        "won": False,
        "stop_reason": "max_steps",
        "instruction": "find the exit",
        "steps": (),
        "verdict": "the end",
    }
    return ShownEpisode(**(fields | changes))
