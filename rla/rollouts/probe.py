"""The scheduler of replies about whole tasks: K samples of one prompt, tried on the actions of all its trajectories.

In the scores shard each trajectory has the row of its step 0, whose K judgements are the same replies, each scored by
whether this trajectory's action does what it demands. Prompt, text and tokens stand in the first row alone: they were
sampled once, and train once. Where the environment knows an action that is right, the row `reference-<task id>` has its
scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import Prober
from rla.envs.views import reference_row
from rla.rollouts.groups import run_groups
from rla.rollouts.replying import Replier
from rla.seeds import derive
from rla.store.records import Judgement, StepScore, StopReason, Task

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """What all tasks of one stage share."""

    replier: Replier
    prober: Prober
    seed: int


async def probe_tasks(
    tasks: Iterable[tuple[Task, Sequence[Row]]],
    shared: Probing,
    *,
    concurrency: int,
    finished: Callable[[int, list[StepScore]], None],
) -> None:
    """Scores of all tasks with their trajectory rows; `finished(index, rows)` as each is done. Closes the prober."""

    async def one(item: tuple[Task, Sequence[Row]]) -> list[StepScore]:
        return await probe_task(*item, shared)

    def done(index: int, found: list[list[StepScore]]) -> None:
        finished(index, found[0])

    try:
        await run_groups(([item] for item in tasks), one, concurrency=concurrency, finished=done)
    finally:
        await shared.prober.close()


async def probe_task(task: Task, rows: Sequence[Row], shared: Probing) -> list[StepScore]:
    """The rows of one task: none where no episode has an action, and rows without judgements where the prompt does not
    fit or nothing could be tried.
    """
    played = [row for row in rows if row["stop_reason"] != StopReason.ENV_ERROR]
    if not played:
        return []
    prompt_ids, sampled = await shared.replier.reply(
        shared.prober.messages(task), seed=derive(shared.seed, task.task_id, played[0]["trajectory_id"])
    )
    if not sampled:
        return [empty(row, prompt_ids) for row in played]
    replies = [None if judgement.truncated else judgement.text for judgement in sampled]
    actions = [row["steps"][0]["action"] for row in played]
    names = [row["trajectory_id"] for row in played]
    try:
        known = await shared.prober.reference(task)
        table = await shared.prober.tried(task, [*actions, *([] if known is None else [known])], replies)
    except EnvironmentFailure:
        return [empty(row, prompt_ids) for row in played]
    names += [] if known is None else [reference_row(task.task_id)]
    return [
        scored(
            name, task, sampled if number == 0 else without_tokens(sampled), scores, prompt_ids if number == 0 else []
        )
        for number, (name, scores) in enumerate(zip(names, table, strict=True))
    ]


def without_tokens(sampled: Sequence[Judgement]) -> list[Judgement]:
    """The same without what stands in the first row."""
    return [replace(judgement, text="", token_ids=[], logprobs=[], allowed=[]) for judgement in sampled]


def scored(
    name: str, task: Task, sampled: Sequence[Judgement], scores: Sequence[int | None], prompt_ids: list[int]
) -> StepScore:
    read = [score for score in scores if score is not None]
    return StepScore(
        trajectory_id=name,
        task_id=task.task_id,
        step=0,
        prompt_ids=prompt_ids,
        mean_score=sum(read) / len(read) if read else None,
        judgements=[replace(judgement, score=score) for judgement, score in zip(sampled, scores, strict=True)],
    )


def empty(row: Row, prompt_ids: list[int]) -> StepScore:
    """A row that was not judged, as of a step whose prompt did not fit."""
    return StepScore(
        trajectory_id=row["trajectory_id"],
        task_id=row["task_id"],
        step=0,
        prompt_ids=prompt_ids,
        mean_score=None,
        judgements=[],
    )
