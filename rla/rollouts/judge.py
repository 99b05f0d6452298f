"""The scheduler of judgements: every step of a trajectory is judged m times, samples of a step sharing their prompt.

The steps of a trajectory are judged in order, as one session: where their prompts share a prefix, an engine of fixed
slots computes it once. An engine that finds shared prefixes by itself gets all steps of a trajectory at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rla.agents.judge import step_score, views, voted
from rla.agents.picturing import judged_with_pictures
from rla.envs.prompts import JudgePrompt
from rla.envs.views import JudgeView
from rla.llm.picture_chat import PromptTokens
from rla.rollouts.groups import run_groups
from rla.rollouts.looking import screens_of
from rla.rollouts.replying import Replier
from rla.seeds import derive
from rla.store.records import Judgement, StepScore


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What all judgements of one stage share."""

    replier: Replier
    prompt: JudgePrompt
    seed: int
    at_once: bool = False  # all steps of an episode are asked for together, where the engine likes many requests
    images: int = 1  # `judge.images`, for rows that come with their pictures


async def judge_groups(
    groups: Iterable[Sequence[Mapping[str, Any]]],
    shared: Judging,
    *,
    concurrency: int,
    finished: Callable[[int, list[StepScore]], None],
) -> None:
    """Judge every step of every trajectory row; `finished(index, rows)` as each group completes."""

    def whole(number: int, judged: list[list[StepScore]]) -> None:
        finished(number, [row for rows in judged for row in rows])

    await run_groups(groups, lambda row: judge_trajectory(row, shared), concurrency=concurrency, finished=whole)


async def judge_trajectory(trajectory: Mapping[str, Any], shared: Judging) -> list[StepScore]:
    """The rows of one trajectory, step by step, as one session of the engine."""
    name, screens = trajectory["trajectory_id"], screens_of(trajectory)

    async def judged(index: int, view: JudgeView) -> StepScore:
        if screens:
            prompt, judgements = await judge_seen_step(name, index, view, shared)
            return step_score(trajectory, index, prompt.ids, judgements, images=prompt.images)
        prompt_ids, judgements = await judge_step(name, index, view, shared)
        return step_score(trajectory, index, prompt_ids, judgements)

    steps = [judged(index, view) for index, view in enumerate(views(trajectory, screens, images=shared.images))]
    rows = await asyncio.gather(*steps) if shared.at_once else [await step for step in steps]
    shared.replier.release(name)
    return rows


async def judge_step(
    trajectory_id: str, index: int, view: JudgeView, shared: Judging
) -> tuple[list[int], list[Judgement]]:
    """The prompt ids and the m judgements of one step; a prompt that does not fit has no judgements that count."""
    prompt_ids, replies = await shared.replier.reply(
        shared.prompt.messages(view),
        seed=derive(shared.seed, trajectory_id, index),
        session=None if shared.at_once else trajectory_id,
    )
    return prompt_ids, [voted(reply, shared.prompt) for reply in replies]


async def judge_seen_step(
    trajectory_id: str, index: int, view: JudgeView, shared: Judging
) -> tuple[PromptTokens, list[Judgement]]:
    """`judge_step` of a step that is judged by its pictures."""
    prompt, replies = await shared.replier.look(
        judged_with_pictures(shared.prompt, view),
        seed=derive(shared.seed, trajectory_id, index),
        session=None if shared.at_once else trajectory_id,
    )
    return prompt, [voted(reply, shared.prompt) for reply in replies]
