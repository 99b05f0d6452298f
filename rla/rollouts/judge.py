"""What the reward model writes, and its schedulers: every step of a trajectory is judged m times, samples of a step
sharing their prompt.

The steps of a trajectory are judged in order, as one session: where their prompts share a prefix, an engine of fixed
slots computes it once. An engine that finds shared prefixes by itself gets all steps of a trajectory at once.

About whole tasks it writes K samples of one prompt, which are tried on the actions of all trajectories of the task. In
the scores shard each trajectory has the row of its step 0, whose K judgements are the same replies, each scored by
whether this trajectory's action does what it demands. Prompt, text and tokens stand in the first row alone: they were
sampled once, and train once. If the environment knows an action that is right, the row `reference-<task id>` has its
scores.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from rla.agents.judge import judged_with_pictures, step_score, unscored_judgement, views, voted
from rla.config.sections import JudgeConfig
from rla.envs.observation import EnvironmentFailure
from rla.envs.prompts import JudgePrompt
from rla.envs.protocols import Prober
from rla.envs.views import JudgeView, reference_row
from rla.llm.base import Generator, Request, TokenTrie, UnusableReply, replies_to
from rla.llm.chat import ChatFormat, Message
from rla.pictures.prompts import PictureMessage, parts_message
from rla.pictures.shard import screens_of
from rla.pictures.vision import PictureChat, PromptTokens, VisionFormat
from rla.rollouts.groups import run_groups
from rla.seeds import derive
from rla.store.records import Judgement, StepScore, StopReason, Task

if TYPE_CHECKING:
    from rla.llm.chat_server import ChatServer

Row = Mapping[str, Any]

log = logging.getLogger(__name__)


class Replier(Protocol):
    """`reply` gives the prompt's token ids, empty where they are not known, and up to `judge.votes` judgements without
    a score: none where the prompt does not fit or no reply came. `session` names prompts that grow from each other.
    """

    async def reply(
        self, messages: Sequence[Message], *, seed: int, session: str | None = None
    ) -> tuple[list[int], list[Judgement]]: ...

    async def look(
        self, messages: Sequence[PictureMessage], *, seed: int, session: str | None = None
    ) -> tuple[PromptTokens, list[Judgement]]:
        """`reply` to turns with pictures."""
        ...

    def release(self, session: str) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReplier:
    """Replies of a Generator. `allowed`: all that may be said, with `judge.decoding: admissible`. `vision`: of a model
    that sees pictures.
    """

    generator: Generator
    chat: ChatFormat
    config: JudgeConfig
    allowed: TokenTrie | None = None
    vision: VisionFormat | None = None

    async def reply(
        self, messages: Sequence[Message], *, seed: int, session: str | None = None
    ) -> tuple[list[int], list[Judgement]]:
        prompt = PromptTokens(ids=self.chat.first(messages))
        return prompt.ids, await self._sampled(prompt, seed=seed, session=session)

    async def look(
        self, messages: Sequence[PictureMessage], *, seed: int, session: str | None = None
    ) -> tuple[PromptTokens, list[Judgement]]:
        if self.vision is None:
            raise RuntimeError("pictures for a model that sees none")
        prompt = PictureChat(self.chat, self.vision).first(messages)
        return prompt, await self._sampled(prompt, seed=seed, session=session)

    async def _sampled(self, prompt: PromptTokens, *, seed: int, session: str | None) -> list[Judgement]:
        """Empty where the prompt does not fit, and where the engine's replies are unusable."""
        if len(prompt.ids) + self.config.max_tokens > self.generator.context:
            return []
        request = Request(
            prompt_ids=prompt.ids,
            max_tokens=self.config.max_tokens,
            temperature=self.config.temperature,
            seed=seed,
            samples=self.config.votes,
            session=session,
            allowed=self.allowed,
            images=prompt.images,
            turns=prompt.turns,
        )
        try:
            completions = await replies_to(self.generator, request)
        except UnusableReply as unusable:
            log.warning("a judgement is missing: %s", unusable)
            return []
        return [unscored_judgement(completion, self.chat) for completion in completions]

    def release(self, session: str) -> None:
        self.generator.release(session)

    def close(self) -> None:
        self.generator.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReplier:
    """Replies of a chat server: text alone. It is sent pictures as parts of messages."""

    server: ChatServer
    config: JudgeConfig

    async def reply(
        self, messages: Sequence[Message], *, seed: int, session: str | None = None
    ) -> tuple[list[int], list[Judgement]]:
        return [], await self._replies(messages, seed=seed)

    async def look(
        self, messages: Sequence[PictureMessage], *, seed: int, session: str | None = None
    ) -> tuple[PromptTokens, list[Judgement]]:
        return PromptTokens(ids=[]), await self._replies(list(map(parts_message, messages)), seed=seed)

    async def _replies(self, messages: Sequence[Mapping[str, Any]], *, seed: int) -> list[Judgement]:
        replies = await self.server.replies(
            messages,
            samples=self.config.votes,
            seed=seed,
            temperature=self.config.temperature,
            max_tokens=self.config.max_tokens,
        )
        return [
            Judgement(score=None, text=one.text, truncated=one.truncated, token_ids=[], logprobs=[], allowed=[])
            for one in replies
        ]

    def release(self, session: str) -> None:
        """Nothing is kept by session."""

    def close(self) -> None:
        """Nothing to stop: connections end with the event loop."""


def reply_trie(chat: ChatFormat, prompt: JudgePrompt, config: JudgeConfig) -> TokenTrie | None:
    """The trie of the prompt's replies with `decoding: admissible`, else nothing."""
    if config.decoding == "free":
        return None
    return TokenTrie([*chat.encode(reply), chat.end_id] for reply in prompt.replies())


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What all judgements of one stage share."""

    replier: Replier
    prompt: JudgePrompt
    seed: int
    at_once: bool = False  # all steps of an episode are asked for together, where the engine likes many requests
    images: int = 1  # `judge.images`, for rows that come with their pictures
    voted: Callable[[StepScore], None] | None = None  # `rla.rollouts.first_group`: hears every row


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
        """A prompt that does not fit has no judgements that count."""
        seed, session = derive(shared.seed, name, index), None if shared.at_once else name
        if screens:
            asked = judged_with_pictures(shared.prompt, view)
            prompt, replies = await shared.replier.look(asked, seed=seed, session=session)
        else:
            ids, replies = await shared.replier.reply(shared.prompt.messages(view), seed=seed, session=session)
            prompt = PromptTokens(ids=ids)
        judgements = [voted(reply, shared.prompt) for reply in replies]
        row = step_score(trajectory, index, prompt.ids, judgements, images=prompt.images if screens else None)
        if shared.voted is not None:
            shared.voted(row)
        return row

    steps = (judged(index, view) for index, view in enumerate(views(trajectory, screens, images=shared.images)))
    rows = await asyncio.gather(*steps) if shared.at_once else [await step for step in steps]
    shared.replier.release(name)
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """What all tasks of one stage share."""

    replier: Replier
    prober: Prober
    seed: int
    voted: Callable[[StepScore], None] | None = None  # as of Judging


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
        return [step_score(row, 0, prompt_ids, []) for row in played]
    replies = [None if judgement.truncated else judgement.text for judgement in sampled]
    actions = [row["steps"][0]["action"] for row in played]
    names = [row["trajectory_id"] for row in played]
    try:
        known = await shared.prober.reference(task)
        table = await shared.prober.tried(task, [*actions, *([] if known is None else [known])], replies)
    except EnvironmentFailure:
        return [step_score(row, 0, prompt_ids, []) for row in played]
    names += [] if known is None else [reference_row(task.task_id)]
    repeated = [replace(judgement, text="", token_ids=[], logprobs=[], allowed=[]) for judgement in sampled]
    rows_of_scores = []
    for number, (name, scores) in enumerate(zip(names, table, strict=True)):
        said = zip(repeated if number else sampled, scores, strict=True)
        votes = [replace(judgement, score=score) for judgement, score in said]
        row = {"trajectory_id": name, "task_id": task.task_id}
        rows_of_scores.append(step_score(row, 0, [] if number else prompt_ids, votes))
    if shared.voted is not None:
        shared.voted(rows_of_scores[0])
    return rows_of_scores
