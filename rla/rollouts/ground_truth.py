"""What the environment itself says about the steps of a trajectory shard: the stages' way to `rla.rollouts.labels`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from rla.config import Config
from rla.envs.protocols import Labels
from rla.envs.registry import environment
from rla.pipeline.context import StageContext
from rla.rollouts.labels import PlayedEpisode, StepLabels, label_episodes
from rla.seeds import derive
from rla.store.pools import tasks_by_id
from rla.store.reading import read_manifest, read_nested
from rla.store.records import StopReason, Task

COLUMNS = ["trajectory_id", "task_id", "stop_reason", "final_observation", "calls", "screens"]
COLUMNS += [f"steps.list.element.{name}" for name in ("action", "observation")]


def labels_of(ctx: StageContext) -> StepLabels:
    """Labels of the stage's `trajectories`, whose tasks lie in its `pool` and its `candidates` (if any); none where the
    environment has no ground truth about steps.
    """
    pools = [(ctx.path("pool"), "tasks")]
    if ctx.path("candidates").exists():
        pools.append((ctx.path("candidates"), "candidates"))
    return labels_in(ctx.path("trajectories"), pools, ctx.config)


def labels_in(
    trajectories: Path, pools: Sequence[tuple[Path, str]], config: Config, *, only: Collection[str] | None = None
) -> StepLabels:
    """Labels of a trajectory shard, or of the episodes `only`. `pools`: (folder, kind) of what holds their tasks."""
    chosen = environment(config.env.name)
    if not isinstance(chosen, Labels):
        return StepLabels()
    episodes = [one for one in played_episodes(trajectories) if only is None or one.trajectory_id in only]
    wanted = {episode.task_id for episode in episodes}
    tasks: dict[str, Task] = {}
    for folder, kind in pools:
        tasks |= tasks_by_id(folder, kind, wanted)
    return label_episodes(episodes, tasks, labeller=chosen, config=config)


def drawn_lessons(labels: pl.DataFrame, *, share: float, seed: int) -> pl.DataFrame:
    """trajectory_id, step, label of about `share` of the labelled steps, which teach a reward model
    (`rla.credit.consistency`). A step's own seed decides whether it is drawn, whatever else is there.
    """
    keys = labels.select("trajectory_id", "step").iter_rows()
    chosen = [derive(seed, "reward_model_truth", *key) < share * 2**63 for key in keys]
    return labels.filter(pl.Series(chosen, dtype=pl.Boolean)).select("trajectory_id", "step", "label")


def played_episodes(trajectories: Path) -> Iterator[PlayedEpisode]:
    """The episodes of a shard that have steps; those that the environment broke are no evidence of anything."""
    for part in read_manifest(trajectories, "trajectories")["parts"]:
        for row in read_nested(trajectories / part["name"], COLUMNS, kind="trajectories", entry=part):
            if row["steps"] and row["stop_reason"] != StopReason.ENV_ERROR:
                yield PlayedEpisode(
                    trajectory_id=row["trajectory_id"],
                    task_id=row["task_id"],
                    actions=[step["action"] for step in row["steps"]],
                    answers=[*(step["observation"] for step in row["steps"][1:]), row["final_observation"]],
                    statuses=statuses_of_steps(row),
                    screens=screens_after_steps(row),
                )


def statuses_of_steps(row: Mapping[str, Any]) -> list[list[str]] | None:
    """How the calls of each step ended; None for an episode without tools."""
    calls = row.get("calls")
    if calls is None:
        return None
    return [[call["status"] for call in calls if call["step"] == step] for step in range(len(row["steps"]))]


def screens_after_steps(row: Mapping[str, Any]) -> list[list[str]] | None:
    """Digests of the pictures that followed each step; None for an episode that names no pictures."""
    screens = row.get("screens")
    return None if not screens or not any(screens) else list(screens[1 : len(row["steps"]) + 1])
