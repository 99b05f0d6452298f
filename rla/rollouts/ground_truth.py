"""What the environment itself says about the steps of a trajectory shard: the stages' way to `rla.rollouts.labels`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rla.envs.registry import setting
from rla.pipeline.common import tasks_of
from rla.pipeline.context import StageContext
from rla.rollouts.labels import Labels, Played, label_episodes
from rla.store.records import StopReason
from rla.store.shards import read_manifest, read_nested

COLUMNS = ["trajectory_id", "task_id", "stop_reason", "final_observation"]
COLUMNS += [f"steps.list.element.{name}" for name in ("action", "observation")]


def labels_of(ctx: StageContext) -> Labels:
    """Labels of the stage's `trajectories`, whose tasks lie in its `pool` and its `candidates` (if any)."""
    trajectories = ctx.path("trajectories")
    episodes = list(played(trajectories))
    wanted = {episode.task_id for episode in episodes}
    tasks = tasks_of(ctx.path("pool"), "tasks", wanted)
    if ctx.path("candidates").exists():
        tasks |= tasks_of(ctx.path("candidates"), "candidates", wanted)
    return label_episodes(episodes, tasks, environment=setting(ctx.config.env.name), config=ctx.config.env)


def played(trajectories: Path) -> Iterator[Played]:
    """The episodes of a shard that have steps; those that the environment broke are no evidence of anything."""
    for part in read_manifest(trajectories, "trajectories")["parts"]:
        for row in read_nested(trajectories / part["name"], COLUMNS):
            if row["steps"] and row["stop_reason"] != StopReason.ENV_ERROR:
                yield Played(
                    trajectory_id=row["trajectory_id"],
                    task_id=row["task_id"],
                    actions=[step["action"] for step in row["steps"]],
                    answers=[*(step["observation"] for step in row["steps"][1:]), row["final_observation"]],
                )
