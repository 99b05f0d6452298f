"""A scores shard: the reward model's judgements of a trajectory shard, as `score-steps` and `evaluate` ask for them.

The environment decides on the question. `Judged`: every step of a trajectory is judged m times; samples of a step share
their prompt. The steps are judged in order, as one session, so that an engine of fixed slots computes a shared prefix
once. An engine that finds shared prefixes by itself gets all steps of a trajectory at once.

`Probes`: the reward model writes K samples of one prompt about a whole task, and the environment's prober scores them
for all trajectories of the task, as judgements of step 0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, cast

from rla.agents import judged_with_pictures, views
from rla.config import Config
from rla.config.sections import JudgeConfig
from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import Judged, JudgePrompt, JudgeView, Prober, Probes, need
from rla.envs.registry import environment
from rla.errors import UserError
from rla.llm.base import Completion, FinishReason, Generator, Request, TokenTrie, UnusableReply, replies_to
from rla.llm.chat import ChatFormat, Message, reply_text
from rla.models.checkpoint import model_folder
from rla.models.load import tokenizer_fingerprint
from rla.pictures.prompts import PictureMessage, shows_images
from rla.pictures.shard import images_folder, refuse_other_images, screens_of, with_pngs
from rla.pictures.vision import PictureChat, PromptTokens, VisionFormat, vision_for
from rla.pipeline import StageContext, implementation
from rla.pipeline.origins import check_failures, run_async
from rla.rollouts.first_replies import FirstReplies
from rla.rollouts.play import run_groups
from rla.seeds import derive
from rla.store.reading import Entry, listed_parts, part_rows, read_part, shard_parts, tasks_by_id
from rla.store.records import Judgement, StepScore, StopReason, Task, columns
from rla.store.shards import ShardWriter
from rla.text import after_thinking

PLAYED = ("task_id", "trajectory_id", "steps.list.element.valid")
COLUMNS = ("task_id", "trajectory_id", "instruction", "steps", "final_observation", "stop_reason", "screens")
FAILED = "failed"  # count of the replies that a chat server has not given; no other shard has it

Row = Mapping[str, Any]
Finished = Callable[[int, list[StepScore]], None]
log = logging.getLogger(__name__)


class Replier(Protocol):
    """Asks a judge. `judge.server` in `rla.options` makes the replier of a chat server from a `JudgeConfig`."""

    async def reply(
        self, messages: Sequence[Message | PictureMessage], *, seed: int, session: str | None = None
    ) -> tuple[PromptTokens, list[Judgement]]:
        """The prompt and `judge.votes` judgements without a score; fewer, or none, if replies are missing.

        `session` names prompts that grow from each other. Ids of a prompt that are unknown are left empty.
        """

    def release(self, session: str) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReplier:
    """Replies of a Generator. `allowed`: all possible replies, with `judge.decoding: admissible`. `vision`: of a model
    that sees pictures.
    """

    generator: Generator
    chat: ChatFormat
    config: JudgeConfig
    allowed: TokenTrie | None = None
    vision: VisionFormat | None = None

    async def reply(
        self, messages: Sequence[Message | PictureMessage], *, seed: int, session: str | None = None
    ) -> tuple[PromptTokens, list[Judgement]]:
        """No judgement if the prompt does not fit, or the engine's replies are unusable."""
        if self.vision is not None and isinstance(messages[0], PictureMessage):
            prompt = PictureChat(self.chat, self.vision).first(cast(Sequence[PictureMessage], messages))
        else:
            prompt = PromptTokens(ids=self.chat.first(cast(Sequence[Message], messages)))
        if len(prompt.ids) + self.config.max_tokens > self.generator.context:
            return prompt, []
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
            return prompt, []
        return prompt, [unscored_judgement(completion, self.chat) for completion in completions]

    def release(self, session: str) -> None:
        self.generator.release(session)

    def close(self) -> None:
        self.generator.close()


def reply_trie(chat: ChatFormat, prompt: JudgePrompt, config: JudgeConfig) -> TokenTrie | None:
    """The trie of the prompt's replies with `decoding: admissible`, else None."""
    if config.decoding == "free":
        return None
    return TokenTrie([*chat.encode(reply), chat.end_id] for reply in prompt.replies())


def _make_replier(config: Config, rm: Path | None, prompt: JudgePrompt | None) -> Replier:
    """The engine over the reward model `rm`, or the chat server without one. Raises UserError.

    `prompt`: of judgements of steps, whose replies may be restricted and whose prompts may have pictures.
    """
    if rm is None:
        replier: Replier = implementation("judge.server")(config.judge)
        return replier
    from rla.llm.factory import make_generator

    generator, tokenizer = make_generator(config.generator, model=model_folder(rm), seed=config.seed)
    replier = EngineReplier(generator=generator, chat=ChatFormat(tokenizer), config=config.judge)
    if prompt is None:
        return replier
    vision = vision_for(environment(config.env.name), config, model_folder(rm))
    return replace(replier, allowed=reply_trie(replier.chat, prompt, config.judge), vision=vision)


def unscored_judgement(completion: Completion, chat: ChatFormat) -> Judgement:
    """A completion before its text is read."""
    return Judgement(
        score=None,
        text=reply_text(completion, chat),
        truncated=completion.finish_reason is FinishReason.LENGTH,
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
        allowed=completion.allowed,
    )


def voted(judgement: Judgement, prompt: JudgePrompt) -> Judgement:
    """The judgement with the vote in its text; a reply that does not parse has no score and does not count."""
    return replace(judgement, score=None if judgement.truncated else prompt.parse(after_thinking(judgement.text)))


def _step_score(
    trajectory: Row, step: int, prompt: PromptTokens, judgements: list[Judgement], *, pictured: bool = False
) -> StepScore:
    """The row of one judged step: `mean_score` is the mean over valid judgements, null without any. `pictured`: the
    judge sees pictures.
    """
    votes = [judgement.score for judgement in judgements if judgement.score is not None]
    return StepScore(
        trajectory_id=trajectory["trajectory_id"],
        task_id=trajectory["task_id"],
        step=step,
        prompt_ids=prompt.ids,
        mean_score=sum(votes) / len(votes) if votes else None,
        judgements=judgements,
        image_spans=[columns(one.span()) for one in prompt.images] if pictured else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Everything that the judgements of one stage share."""

    replier: Replier
    prompt: JudgePrompt
    seed: int
    at_once: bool = False  # all steps of an episode are asked for together, if the engine likes many requests
    images: int = 1  # `judge.images`, for rows that come with their pictures
    voted: Callable[[StepScore], None] | None = None  # called with every row (`FirstReplies.voted`)


async def judge_groups(
    groups: Iterable[Sequence[Row]], shared: Judging, *, concurrency: int, finished: Finished
) -> None:
    """Judge every step of every trajectory row; `finished(index, rows)` as each group completes."""
    await run_groups(
        groups, lambda row: judge_trajectory(row, shared), concurrency=concurrency, finished=_joined(finished)
    )


def _joined(finished: Finished) -> Callable[[int, list[list[StepScore]]], None]:
    """`finished` for the rows of several trajectories."""
    return lambda number, found: finished(number, list(chain.from_iterable(found)))


async def judge_trajectory(trajectory: Row, shared: Judging) -> list[StepScore]:
    """The rows of one trajectory, step by step, as one session of the engine. A step whose prompt does not fit has no
    judgements.
    """
    name, screens = trajectory["trajectory_id"], screens_of(trajectory)

    async def judged(index: int, view: JudgeView) -> StepScore:
        asked: Sequence[Message | PictureMessage] = (
            judged_with_pictures(shared.prompt, view) if screens else shared.prompt.messages(view)
        )
        prompt, replies = await shared.replier.reply(
            asked, seed=derive(shared.seed, name, index), session=None if shared.at_once else name
        )
        votes = [voted(reply, shared.prompt) for reply in replies]
        row = _step_score(trajectory, index, prompt, votes, pictured=bool(screens))
        if shared.voted is not None:
            shared.voted(row)
        return row

    steps = (judged(index, view) for index, view in enumerate(views(trajectory, screens, images=shared.images)))
    rows = await asyncio.gather(*steps) if shared.at_once else [await step for step in steps]
    shared.replier.release(name)
    return rows


async def probe_task(
    task: Task, rows: Sequence[Row], prober: Prober, replier: Replier, *, seed: int
) -> list[StepScore]:
    """The rows of one task: none if no episode has an action, and rows without judgements if the prompt does not fit or
    nothing could be tried.
    """
    played = [row for row in rows if row["stop_reason"] != StopReason.ENV_ERROR]
    if not played:
        return []
    prompt, replies = await replier.reply(
        prober.messages(task), seed=derive(seed, task.task_id, played[0]["trajectory_id"])
    )
    judged: list[tuple[str, list[Judgement]]] = []
    if replies:
        with suppress(EnvironmentFailure):
            judged = await prober.judged(task, played, replies)
    if not judged:
        return [_step_score(row, 0, prompt, []) for row in played]
    return [
        _step_score(
            {"trajectory_id": name, "task_id": task.task_id}, 0, PromptTokens(ids=[]) if number else prompt, votes
        )
        for number, (name, votes) in enumerate(judged)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlayedTask:
    """The trajectories of one task: their parts, and their number of steps. Rows are read when it is their turn."""

    task_id: str
    parts: Mapping[Path, Entry]  # each with its entry of the manifest
    steps: int
    only: frozenset[str] | None = None

    def rows(self) -> list[dict[str, Any]]:
        """The rows that have steps, in order; if `only` is given, those with an id in it."""
        found: list[dict[str, Any]] = []
        for part, entry in self.parts.items():
            rows = part_rows(part, COLUMNS, keys={self.task_id}, kind="trajectories", entry=entry)
            kept = [row for row in rows if row["steps"] and (self.only is None or row["trajectory_id"] in self.only)]
            found += with_pngs(part, kept)
        return found


def played_tasks(trajectories: Path, only: frozenset[str] | None = None) -> list[_PlayedTask]:
    """The tasks of a trajectory shard that have steps to judge, in order. Damage of the shard is found here.

    `only`: ids of the trajectories to judge; None: all.
    """
    parts: dict[str, dict[Path, Entry]] = {}
    steps: dict[str, int] = {}
    for path, entry in listed_parts(trajectories, "trajectories").items():
        for row in read_part(path, PLAYED, kind="trajectories", entry=entry).to_pylist():
            if row["steps"] and (only is None or row["trajectory_id"] in only):
                name = row["task_id"]
                steps[name] = steps.get(name, 0) + len(row["steps"])
                parts.setdefault(name, {})[path] = entry
    return [_PlayedTask(task_id=name, parts=found, steps=steps[name], only=only) for name, found in parts.items()]


def score_played(
    ctx: StageContext,
    writer: ShardWriter,
    trajectories: Path,
    rm: Path | None,
    *,
    pools: Sequence[str],
    only: frozenset[str] | None = None,
) -> None:
    """Scores for every played task of the writer's slice that has no part yet.

    `pools`: options of the folders that hold the tasks, for environments that have to know them. `only`: as for
    `played_tasks`. `rm`: the checkpoint of the reward model, if it judges itself.
    """
    config, chosen = ctx.config, environment(ctx.config.env.name)
    if images_folder(trajectories).exists() and shows_images(chosen, config):
        refuse_other_images(trajectories)
    groups = enumerate(played_tasks(trajectories, only))
    left = [(index, task) for index, task in groups if index not in writer.done and writer.slice.takes(index)]
    ctx.progress.start("score-steps", total=sum(task.steps for _, task in left))
    if not left:
        return

    def finished(position: int, scores: list[StepScore]) -> None:
        writer.write(left[position][0], [score.row() for score in scores])
        ctx.progress.advance(len(scores))

    # What may fail comes before the engine loads the model.
    prober = chosen.prober(config) if isinstance(chosen, Probes) else None
    tasks = {} if prober is None else _known_tasks(ctx, [task for _, task in left], pools)
    prompt = need(chosen, Judged, "score-steps").judge_prompt(config) if prober is None else None
    replier = _make_replier(config, rm, prompt)
    first = FirstReplies(ctx, "unreadable-votes", rm, aloud=writer.slice.takes(0))
    first.begin(replier.chat if isinstance(replier, EngineReplier) else None)
    if prober is not None:
        asked = ([(tasks[task.task_id], task.rows())] for _, task in left)

        async def probe(item: tuple[Task, Sequence[Row]]) -> list[StepScore]:
            rows = await probe_task(*item, prober, replier, seed=config.seed)
            if rows and rows[0].judgements:
                first.voted(rows[0])
            return rows

        async def probe_all() -> None:
            try:
                concurrency = config.rollout.concurrency
                await run_groups(asked, probe, concurrency=concurrency, finished=_joined(finished))
            finally:
                await prober.close()

        run_async(probe_all())
    elif prompt is not None:
        # The steps of an episode share a prefix. The transformers engine has it in the slot of the episode's session, a
        # second one for replies that branch off, so more trajectories at once would lose their slots.
        slots = config.judge.trains and config.generator.engine_name == "transformers"
        most = config.rollout.concurrency
        if slots and config.generator.backend == "transformers":
            most = max(1, min(most, config.generator.max_sequences // min(config.judge.votes, 2)))
        judging = Judging(
            replier=replier,
            prompt=prompt,
            seed=config.seed,
            at_once=not slots,  # other engines find shared prefixes by themselves
            images=config.judge.images,
            voted=first.voted,
        )
        run_async(judge_groups((task.rows() for _, task in left), judging, concurrency=most, finished=finished))
    replier.close()
    first.end()


def _known_tasks(ctx: StageContext, tasks: Sequence[_PlayedTask], pools: Sequence[str]) -> dict[str, Task]:
    """The rows of the tasks that were played. Raises UserError if one is in none of the pools."""
    wanted = {task.task_id for task in tasks}
    found: dict[str, Task] = {}
    for option in pools:
        kind = "candidates" if option == "candidates" else "tasks"
        if kind == "tasks" or ctx.path(option).exists():
            found |= tasks_by_id(ctx.path(option), kind, wanted)
    if missing := sorted(wanted - found.keys()):
        raise UserError(
            f"{ctx.path(pools[0])}: {len(missing)} of the played tasks are not in it (the first: {missing[0]}); give "
            "the pool and the candidates that were played"
        )
    return found


def finish_scores(ctx: StageContext, writer: ShardWriter, rm: Path | None) -> None:
    """Finish the shard of judgements by the reward model `rm` (None: a chat server, or nobody).

    Raises UserError if too many prompts did not fit, or too many replies did not come. Tasks whose replies did not come
    lose their part, so the next call asks for them again.
    """
    judge, limit = ctx.config.judge, ctx.config.rollout.max_failed_share
    counts = dict.fromkeys(("steps", "skipped", "judgements", "unparsable", "truncated"), 0)
    for part in writer.parts():
        for row in read_part(part, ["judgements.list.element.score", "judgements.list.element.truncated"]).to_pylist():
            counts["steps"] += 1
            counts["skipped"] += not row["judgements"]
            counts["judgements"] += len(row["judgements"])
            counts["unparsable"] += sum(vote["score"] is None for vote in row["judgements"])
            counts["truncated"] += sum(vote["truncated"] for vote in row["judgements"])
    if not judge.trains:
        counts[FAILED] = counts["steps"] * judge.votes - counts["judgements"]

    def check(whole: Mapping[str, int]) -> None:
        if FAILED not in whole:
            remedy = "raise generator.context (a new model has model.context tokens), or lower judge.max_tokens"
            of = (
                f"steps were not judged, because the prompt and a reply of judge.max_tokens {judge.max_tokens} do not "
                f"fit generator.context {ctx.config.generator.context}"
            )
            check_failures(writer.folder, whole["skipped"], whole["steps"], limit, of=of, remedy=remedy)
            return
        try:
            of = f"replies of {judge.server.url} failed"
            check_failures(writer.folder, whole[FAILED], whole["steps"] * judge.votes, limit, of=of)
        except UserError:
            for part in shard_parts(writer.folder):
                rows = read_part(part, ["judgements.list.element.truncated"]).to_pylist()
                if any(len(row["judgements"]) < judge.votes for row in rows):
                    writer.discard(part)
            raise

    tokenizer = tokenizer_fingerprint(model_folder(rm)) if rm else None
    writer.finish(counts, tokenizer=tokenizer, check=check)
