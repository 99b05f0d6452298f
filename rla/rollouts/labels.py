"""Ground truth about the steps of played episodes, by replaying their actions in the environment itself.

A replay is believed only where it shows what the policy saw: an episode that was played with other rules (another
`env.own.grammar`, a changed pool) gets no labels rather than wrong ones. Texts tell that. Pictures are compared too,
but a difference is only counted: screenshots differ now and then for no reason of the episode (a caret, a hover). An
environment that cannot replay what a sandbox ran labels what was seen (`LabelsSeen`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from rla.config import Config
from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import Labels, LabelsSeen
from rla.envs.registry import environment
from rla.envs.together import at_once, begun
from rla.envs.views import Labelled, SeenStep
from rla.pictures.vision import png_digest
from rla.pipeline.context import StageContext
from rla.seeds import derive
from rla.store.pools import tasks_by_id
from rla.store.reading import read_manifest, read_nested
from rla.store.records import StopReason, Task

LABELS = {
    "trajectory_id": pl.String,
    "task_id": pl.String,
    "step": pl.Int32,
    "label": pl.Int8,
    "before": pl.Float64,
    "after": pl.Float64,
}
COLUMNS = ["trajectory_id", "task_id", "stop_reason", "final_observation", "calls", "screens"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedEpisode:
    """What is replayed of an episode: the actions, and the text that answered each of them. `statuses`: of the calls of
    a tool that each made; none where the shard says nothing of calls. `screens`: digests of the pictures that answered
    each of them; none where the shard names no pictures.
    """

    trajectory_id: str
    task_id: str
    actions: list[str]
    answers: list[str]
    statuses: list[list[str]] | None = None
    screens: list[list[str]] | None = None


@dataclass(slots=True)
class StepLabels:
    """One row per labelled step, columns of `LABELS`: `label` is +1 where the step helped and -1 where it did not,
    `before` and `after` are what was left to do (infinite: no plan; null: the environment has no such measure).

    `unlabelled`: episodes without ground truth: their task is not known, the replay showed something else, or the
    environment failed in it. `other_pictures`: labelled episodes whose replay showed another picture than the policy
    saw; None where no pictures could be compared.
    """

    frame: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=LABELS))
    unlabelled: int = 0
    other_pictures: int | None = None


def label_episodes(
    episodes: Iterable[PlayedEpisode], tasks: Mapping[str, Task], *, labeller: Labels, config: Config
) -> StepLabels:
    """Labels of all steps of the episodes. `tasks`: by task_id."""
    columns: dict[str, list[object]] = {name: [] for name in LABELS}
    unlabelled = 0
    differs: list[bool] = []  # of the episodes whose pictures can be compared
    asked = [(played, tasks.get(played.task_id)) for played in episodes]
    calls = (partial(_replayed, labeller, task, config, played) for played, task in asked)
    for (played, _), replayed in zip(asked, begun(calls, at_once(labeller, config)), strict=True):
        labels = replayed()
        if [taken.next_observation for taken in labels] != played.answers:
            unlabelled += 1
            continue
        screens = [[png_digest(png) for png in taken.next_images] for taken in labels]
        if played.screens is not None and any(screens):
            differs.append(screens != played.screens)
        columns["trajectory_id"] += [played.trajectory_id] * len(labels)
        columns["task_id"] += [played.task_id] * len(labels)
        columns["step"] += range(len(labels))
        columns["label"] += [taken.score for taken in labels]
        columns["before"] += [taken.before for taken in labels]
        columns["after"] += [taken.after for taken in labels]
    return StepLabels(pl.DataFrame(columns, schema=LABELS), unlabelled, sum(differs) if differs else None)


def _replayed(labeller: Labels, task: Task | None, config: Config, played: PlayedEpisode) -> list[Labelled]:
    """The labels of the actions that were taken. None where nobody knows the task, or where the environment fails,
    which costs this episode alone.
    """
    if task is None:
        return []
    try:
        return _taken(labeller, task, config, played)
    except EnvironmentFailure:
        return []


def _taken(labeller: Labels, task: Task, config: Config, played: PlayedEpisode) -> list[Labelled]:
    if isinstance(labeller, LabelsSeen):
        if played.statuses is None:
            return []
        told = zip(played.actions, played.answers, played.statuses, strict=True)
        steps = [SeenStep(action=action, answer=answer, statuses=ended) for action, answer, ended in told]
        return list(labeller.label_seen(task, config, steps))
    return [taken for taken, *_ in labeller.label(task, config, played.actions)]


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
