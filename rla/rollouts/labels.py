"""Ground truth about the steps of played episodes, by replaying their actions in the environment itself.

A replay is believed only if it shows the texts that the policy saw: an episode that was played with other rules
(a changed pool) gets no labels rather than wrong ones. Pictures are not compared, because
screenshots sometimes differ for reasons outside the episode. An environment that cannot replay a sandbox labels the
steps as they were seen (`LabelsSeen`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import polars as pl

from rla.config import Config
from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import Labelled, Labels, LabelsSeen, SeenStep, prefetched
from rla.envs.registry import environment
from rla.pipeline import StageContext
from rla.store.reading import listed_parts, read_part, tasks_by_id
from rla.store.records import StopReason, Task

LABELS = {
    "trajectory_id": pl.String,
    "task_id": pl.String,
    "step": pl.Int32,
    "label": pl.Int8,
    "before": pl.Float64,
    "after": pl.Float64,
}
COLUMNS = ["trajectory_id", "task_id", "stop_reason", "final_observation", "calls"]
COLUMNS += [f"steps.list.element.{name}" for name in ("action", "observation")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEpisode:
    """An episode to replay: the actions, and the text that answered each of them. `statuses`: how the calls of tools
    ended that each action made; None if the shard does not record calls.
    """

    trajectory_id: str
    task_id: str
    actions: list[str]
    answers: list[str]
    statuses: list[list[str]] | None = None


@dataclass(slots=True)
class StepLabels:
    """One row per labelled step, columns of `LABELS`: `label` is +1 if the step helped, else -1; `before` and `after`
    are the distance to the goal (infinite: no plan; null: the environment has no such measure).

    `unlabelled`: episodes without ground truth: their task is unknown, the replay showed something else, or the
    environment failed in it.
    """

    frame: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=LABELS))
    unlabelled: int = 0


def labels_of(ctx: StageContext) -> StepLabels:
    """Labels of the stage's `trajectories`, whose tasks lie in its `pool` and its `candidates` (if any); empty if the
    environment has no ground truth about steps.
    """
    pools = [(ctx.path("pool"), "tasks")]
    if ctx.path("candidates").exists():
        pools.append((ctx.path("candidates"), "candidates"))
    return labels_in(ctx.path("trajectories"), pools, ctx.config)


def labels_in(
    trajectories: Path, pools: Sequence[tuple[Path, str]], config: Config, *, only: Collection[str] | None = None
) -> StepLabels:
    """Labels of a trajectory shard, or of the episodes `only`. `pools`: (folder, kind) of the task shards."""
    chosen = environment(config.env.name)
    if not isinstance(chosen, Labels):
        return StepLabels()
    episodes = [one for one in _played_episodes(trajectories) if only is None or one.trajectory_id in only]
    wanted = {episode.task_id for episode in episodes}
    tasks: dict[str, Task] = {}
    for folder, kind in pools:
        tasks |= tasks_by_id(folder, kind, wanted)
    return label_episodes(episodes, tasks, labeller=chosen, config=config)


def _played_episodes(trajectories: Path) -> Iterator[PlayedEpisode]:
    """The episodes of a shard that have steps, without broken ones."""
    for path, entry in listed_parts(trajectories, "trajectories").items():
        for row in read_part(path, COLUMNS, kind="trajectories", entry=entry).to_pylist():
            if not row["steps"] or row["stop_reason"] == StopReason.ENV_ERROR:
                continue
            steps, calls = row["steps"], row.get("calls")
            statuses = [[call["status"] for call in calls or () if call["step"] == step] for step in range(len(steps))]
            yield PlayedEpisode(
                trajectory_id=row["trajectory_id"],
                task_id=row["task_id"],
                actions=[step["action"] for step in steps],
                answers=[*(step["observation"] for step in steps[1:]), row["final_observation"]],
                statuses=None if calls is None else statuses,
            )


def label_episodes(
    episodes: Iterable[PlayedEpisode], tasks: Mapping[str, Task], *, labeller: Labels, config: Config
) -> StepLabels:
    """Labels of all steps of the episodes. `tasks`: by task_id."""
    rows: list[tuple[object, ...]] = []
    unlabelled = 0
    asked = [(played, tasks.get(played.task_id)) for played in episodes]
    calls = (partial(_replayed, labeller, task, config, played) for played, task in asked)
    for (played, _), replayed in zip(asked, prefetched(calls, labeller, config), strict=True):
        labels = replayed()
        if [taken.next_observation for taken in labels] != played.answers:
            unlabelled += 1
            continue
        rows += [
            (played.trajectory_id, played.task_id, step, taken.score, taken.before, taken.after)
            for step, taken in enumerate(labels)
        ]
    return StepLabels(pl.DataFrame(rows, schema=LABELS, orient="row"), unlabelled)


def _replayed(labeller: Labels, task: Task | None, config: Config, played: PlayedEpisode) -> list[Labelled]:
    """The labels of the actions; empty if the task is unknown, or if the environment fails, which costs this episode
    alone.
    """
    try:
        if task is None or (isinstance(labeller, LabelsSeen) and played.statuses is None):
            return []
        if not isinstance(labeller, LabelsSeen):
            return [taken for taken, *_ in labeller.label(task, config, played.actions)]
        seen = zip(played.actions, played.answers, played.statuses or (), strict=True)
        steps = [SeenStep(action=action, answer=answer, statuses=ended) for action, answer, ended in seen]
        return list(labeller.label_seen(task, config, steps))
    except EnvironmentFailure:
        return []
