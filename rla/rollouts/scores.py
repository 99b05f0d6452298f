"""A scores shard: the reward model's judgements of a trajectory shard, as `score-steps` and `evaluate` ask for them.

The environment decides on the question. `Judged`: every step of a trajectory is judged m times; samples of a step share
their prompt. The steps are judged in order, as one session, so that an engine of fixed slots computes a shared prefix
once. An engine that finds shared prefixes by itself gets all steps of a trajectory at once.

`Probes`: the reward model writes K samples of one prompt about a whole task, which are tried on the actions of all
trajectories of the task. In the shard each trajectory has the row of its step 0, whose K judgements are the same
replies, each scored by whether this trajectory's action meets it. Prompt, text and tokens stand in the
first row alone: they were sampled once, and train once. If the environment knows an action that is right, the row
`reference-<task id>` has its scores.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.agents.judge import judged_with_pictures, views
from rla.config import Config
from rla.config.sections import JudgeConfig
from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import Judged, JudgePrompt, Prober, Probes, need
from rla.envs.registry import environment
from rla.envs.views import JudgeView, reference_row
from rla.errors import UserError
from rla.llm.base import Completion, FinishReason, Generator, PlacedImage, Request, TokenTrie, UnusableReply, replies_to
from rla.llm.chat import ChatFormat, Message, reply_text
from rla.models.checkpoint import model_folder
from rla.models.load import tokenizer_fingerprint
from rla.pictures.prompts import PictureMessage, parts_message, shows_images
from rla.pictures.shard import images_folder, refuse_other_images, screens_of, with_pngs
from rla.pictures.vision import PictureChat, PromptTokens, VisionFormat, vision_for
from rla.pipeline.context import StageContext
from rla.pipeline.origins import check_failures, run_async
from rla.rollouts.first_replies import FirstReplies
from rla.rollouts.play import run_groups
from rla.seeds import derive
from rla.store.reading import Entry, part_rows, read_manifest, read_nested, tasks_by_id, verify_shard
from rla.store.records import Judgement, StepScore, StopReason, Task, columns
from rla.store.shards import ShardWriter
from rla.text import after_thinking

if TYPE_CHECKING:
    from rla.llm.chat_server import ChatServer

PLAYED = ("task_id", "trajectory_id", "steps.list.element.valid")
COLUMNS = ("task_id", "trajectory_id", "instruction", "steps", "final_observation", "stop_reason", "screens")
FAILED = "failed"  # count of the replies that a chat server has not given; no other shard has it

Row = Mapping[str, Any]
Finished = Callable[[int, list[StepScore]], None]
log = logging.getLogger(__name__)


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
        """The prompt and `judge.votes` judgements without a score: none if the prompt does not fit, or the engine's
        replies are unusable. `session` names prompts that grow from each other.
        """
        if pictured := [message for message in messages if isinstance(message, PictureMessage)]:
            if self.vision is None:
                raise RuntimeError("pictures for a model that sees none")
            prompt = PictureChat(self.chat, self.vision).first(pictured)
        else:
            texts = [message for message in messages if not isinstance(message, PictureMessage)]
            prompt = PromptTokens(ids=self.chat.first(texts))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReplier:
    """Replies of a chat server: text alone, possibly fewer than `judge.votes`. The ids of prompts are unknown, so they
    are empty. Pictures are sent as parts of messages.
    """

    server: ChatServer
    config: JudgeConfig

    async def reply(
        self, messages: Sequence[Message | PictureMessage], *, seed: int, session: str | None = None
    ) -> tuple[PromptTokens, list[Judgement]]:
        replies = await self.server.replies(
            [parts_message(message) if isinstance(message, PictureMessage) else message for message in messages],
            samples=self.config.votes,
            seed=seed,
            temperature=self.config.temperature,
            max_tokens=self.config.max_tokens,
        )
        return PromptTokens(ids=[]), [
            Judgement(score=None, text=one.text, truncated=one.truncated, token_ids=[], logprobs=[], allowed=[])
            for one in replies
        ]

    def release(self, session: str) -> None:
        """Nothing is kept by session."""

    def close(self) -> None:
        """Nothing to stop: connections end with the event loop."""


Replier = EngineReplier | ServerReplier


def reply_trie(chat: ChatFormat, prompt: JudgePrompt, config: JudgeConfig) -> TokenTrie | None:
    """The trie of the prompt's replies with `decoding: admissible`, else None."""
    if config.decoding == "free":
        return None
    return TokenTrie([*chat.encode(reply), chat.end_id] for reply in prompt.replies())


def _make_replier(config: Config, rm: Path | None, prompt: JudgePrompt | None) -> Replier:
    """The engine over the reward model `rm`, or the chat server without one. Raises UserError.

    `prompt`: of judgements, whose replies may be restricted.
    """
    if rm is None:
        from rla.llm.chat_server import ChatServer

        return ServerReplier(server=ChatServer(config.judge.server), config=config.judge)
    from rla.llm.factory import make_generator

    generator, tokenizer = make_generator(config.generator, model=model_folder(rm), seed=config.seed)
    chat = ChatFormat(tokenizer)
    allowed = None if prompt is None else reply_trie(chat, prompt, config.judge)
    vision = None if prompt is None else vision_for(environment(config.env.name), config, model_folder(rm))
    return EngineReplier(generator=generator, chat=chat, config=config.judge, allowed=allowed, vision=vision)


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
    trajectory: Row,
    step: int,
    prompt_ids: list[int],
    judgements: list[Judgement],
    *,
    images: Sequence[PlacedImage] | None = None,
) -> StepScore:
    """The row of one judged step: `mean_score` is the mean over valid judgements, null without any.

    `images`: those in the prompt; None for a judge that does not see pictures.
    """
    votes = [judgement.score for judgement in judgements if judgement.score is not None]
    return StepScore(
        trajectory_id=trajectory["trajectory_id"],
        task_id=trajectory["task_id"],
        step=step,
        prompt_ids=prompt_ids,
        mean_score=sum(votes) / len(votes) if votes else None,
        judgements=judgements,
        image_spans=None if images is None else [columns(one.span()) for one in images],
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

    def whole(number: int, judged: list[list[StepScore]]) -> None:
        finished(number, [row for rows in judged for row in rows])

    await run_groups(groups, lambda row: judge_trajectory(row, shared), concurrency=concurrency, finished=whole)


async def judge_trajectory(trajectory: Row, shared: Judging) -> list[StepScore]:
    """The rows of one trajectory, step by step, as one session of the engine."""
    name, screens = trajectory["trajectory_id"], screens_of(trajectory)

    async def judged(index: int, view: JudgeView) -> StepScore:
        """A prompt that does not fit has no judgements that count."""
        seed, session = derive(shared.seed, name, index), None if shared.at_once else name
        asked: Sequence[Message | PictureMessage] = (
            judged_with_pictures(shared.prompt, view) if screens else shared.prompt.messages(view)
        )
        prompt, replies = await shared.replier.reply(asked, seed=seed, session=session)
        judgements = [voted(reply, shared.prompt) for reply in replies]
        row = _step_score(trajectory, index, prompt.ids, judgements, images=prompt.images if screens else None)
        if shared.voted is not None:
            shared.voted(row)
        return row

    steps = (judged(index, view) for index, view in enumerate(views(trajectory, screens, images=shared.images)))
    rows = await asyncio.gather(*steps) if shared.at_once else [await step for step in steps]
    shared.replier.release(name)
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """Everything that the tasks of one stage share."""

    replier: Replier
    prober: Prober
    seed: int
    voted: Callable[[StepScore], None] | None = None  # as in Judging


async def probe_tasks(
    tasks: Iterable[tuple[Task, Sequence[Row]]], shared: Probing, *, concurrency: int, finished: Finished
) -> None:
    """Scores of all tasks with their trajectory rows; `finished(index, rows)` as each is done. Closes the prober."""

    async def one(item: tuple[Task, Sequence[Row]]) -> list[StepScore]:
        return await _probe_task(*item, shared)

    def done(index: int, found: list[list[StepScore]]) -> None:
        finished(index, found[0])

    try:
        await run_groups(([item] for item in tasks), one, concurrency=concurrency, finished=done)
    finally:
        await shared.prober.close()


async def _probe_task(task: Task, rows: Sequence[Row], shared: Probing) -> list[StepScore]:
    """The rows of one task: none if no episode has an action, and rows without judgements if the prompt does not fit or
    nothing could be tried.
    """
    played = [row for row in rows if row["stop_reason"] != StopReason.ENV_ERROR]
    if not played:
        return []
    prompt, sampled = await shared.replier.reply(
        shared.prober.messages(task), seed=derive(shared.seed, task.task_id, played[0]["trajectory_id"])
    )
    if not sampled:
        return [_step_score(row, 0, prompt.ids, []) for row in played]
    replies = [None if judgement.truncated else judgement.text for judgement in sampled]
    actions = [row["steps"][0]["action"] for row in played]
    names = [row["trajectory_id"] for row in played]
    try:
        known = await shared.prober.reference(task)
        table = await shared.prober.tried(task, [*actions, *([] if known is None else [known])], replies)
    except EnvironmentFailure:
        return [_step_score(row, 0, prompt.ids, []) for row in played]
    names += [] if known is None else [reference_row(task.task_id)]
    repeated = [replace(judgement, text="", token_ids=[], logprobs=[], allowed=[]) for judgement in sampled]
    found = []
    for number, (name, scores) in enumerate(zip(names, table, strict=True)):
        said = zip(repeated if number else sampled, scores, strict=True)
        votes = [replace(judgement, score=score) for judgement, score in said]
        row = {"trajectory_id": name, "task_id": task.task_id}
        found.append(_step_score(row, 0, [] if number else prompt.ids, votes))
    if shared.voted is not None:
        shared.voted(found[0])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedTask:
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


def played_tasks(trajectories: Path, only: frozenset[str] | None = None) -> list[PlayedTask]:
    """The tasks of a trajectory shard that have steps to judge, in order. Damage of the shard is found here.

    `only`: ids of the trajectories to judge; None: all.
    """
    manifest = read_manifest(trajectories, "trajectories")
    verify_shard(trajectories, manifest)
    parts: dict[str, dict[Path, Entry]] = {}
    steps: dict[str, int] = {}
    for part in manifest["parts"]:
        path = trajectories / part["name"]
        for row in read_nested(path, PLAYED, kind="trajectories", entry=part):
            if row["steps"] and (only is None or row["trajectory_id"] in only):
                name = row["task_id"]
                steps[name] = steps.get(name, 0) + len(row["steps"])
                parts.setdefault(name, {})[path] = part
    return [PlayedTask(task_id=name, parts=found, steps=steps[name], only=only) for name, found in parts.items()]


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

    def loaded(prompt: JudgePrompt | None) -> tuple[Replier, FirstReplies]:
        replier = _make_replier(config, rm, prompt)
        first = FirstReplies(ctx, "unreadable-votes", rm, aloud=writer.slice.takes(0))
        first.begin(replier.chat if isinstance(replier, EngineReplier) else None)
        return replier, first

    if isinstance(chosen, Probes):
        prober, known = chosen.prober(config), _known_tasks(ctx, [task for _, task in left], pools)
        replier, first = loaded(None)
        probing = Probing(replier=replier, prober=prober, seed=config.seed, voted=first.voted)
        asked = ((known[task.task_id], task.rows()) for _, task in left)
        run_async(probe_tasks(asked, probing, concurrency=config.rollout.concurrency, finished=finished))
    else:
        prompt = need(chosen, Judged, "score-steps").judge_prompt(config)
        replier, first = loaded(prompt)
        judging = Judging(
            replier=replier,
            prompt=prompt,
            seed=config.seed,
            # these engines find shared prefixes by themselves
            at_once=not config.judge.trains or config.generator.engine_name != "transformers",
            images=config.judge.images,
            voted=first.voted,
        )
        rows = (task.rows() for _, task in left)
        run_async(judge_groups(rows, judging, concurrency=_trajectories_at_once(config), finished=finished))
    replier.close()
    first.end()


def _known_tasks(ctx: StageContext, tasks: Sequence[PlayedTask], pools: Sequence[str]) -> dict[str, Task]:
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


def _trajectories_at_once(config: Config) -> int:
    """The number of trajectories that are judged at once.

    In an engine of fixed slots each takes one slot for its prompt and, with several votes, one for the replies that
    branch off it. Without that room a prompt would lose its slot before its next step.
    """
    if config.generator.backend != "transformers" or not config.judge.trains:
        return config.rollout.concurrency
    return max(1, min(config.rollout.concurrency, config.generator.max_sequences // min(config.judge.votes, 2)))


def finish_scores(ctx: StageContext, writer: ShardWriter, rm: Path | None) -> None:
    """Finish the shard of judgements by the reward model `rm` (None: a chat server, or nobody).

    Raises UserError if too many prompts did not fit, or too many replies did not come.
    """
    tokenizer = tokenizer_fingerprint(model_folder(rm)) if rm else None
    counts = _score_counts(writer.parts(), ctx.config)
    writer.finish(counts, tokenizer=tokenizer, check=lambda whole: _refuse_failed_share(ctx, writer, whole))


def _score_counts(parts: Sequence[Path], config: Config) -> dict[str, int]:
    """Steps, those without a judgement, judgements, unparsable and truncated ones; with a chat server also the replies
    that it has not given.
    """
    counts = dict.fromkeys(("steps", "skipped", "judgements", "unparsable", "truncated"), 0)
    for part in parts:
        for row in read_nested(part, ["judgements.list.element.score", "judgements.list.element.truncated"]):
            counts["steps"] += 1
            counts["skipped"] += not row["judgements"]
            counts["judgements"] += len(row["judgements"])
            counts["unparsable"] += sum(vote["score"] is None for vote in row["judgements"])
            counts["truncated"] += sum(vote["truncated"] for vote in row["judgements"])
    if not config.judge.trains:
        counts[FAILED] = counts["steps"] * config.judge.votes - counts["judgements"]
    return counts


def _refuse_failed_share(ctx: StageContext, writer: ShardWriter, counts: Mapping[str, int]) -> None:
    """Raises UserError if more prompts did not fit, or more replies did not come, than `rollout.max_failed_share`.

    Tasks whose replies did not come lose their part, so the next call asks for them again.
    """
    limit, votes = ctx.config.rollout.max_failed_share, ctx.config.judge.votes
    if FAILED not in counts:
        judge, context = ctx.config.judge, ctx.config.generator.context
        remedy = "raise generator.context (a new model has model.context tokens), or lower judge.max_tokens"
        of = (
            f"steps were not judged, because the prompt and a reply of judge.max_tokens {judge.max_tokens} do not fit "
            f"generator.context {context}"
        )
        check_failures(writer.folder, counts["skipped"], counts["steps"], limit, of=of, remedy=remedy)
        return
    try:
        of = f"replies of {ctx.config.judge.server.url} failed"
        check_failures(writer.folder, counts[FAILED], counts["steps"] * votes, limit, of=of)
    except UserError:
        for part in sorted(writer.folder.glob("part-*.parquet")):
            rows = read_nested(part, ["judgements.list.element.truncated"])
            if any(len(row["judgements"]) < votes for row in rows):
                writer.discard(part)
        raise
