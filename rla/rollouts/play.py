"""Playing episodes with the policy: one episode, groups of episodes at once, and a trajectory shard with a part a task.

One coroutine per episode and no barrier between steps: an episode's next prompt is submitted as soon as its environment
has answered. Episodes of one task start together, so that a task's group is complete early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any, TypeVar

from rla.agents import CommandTries, PolicyAgent, check_calls
from rla.config.sections import EnvConfig, PolicyConfig
from rla.envs.observation import (
    AwaitedEnvironment,
    Concludes,
    Converses,
    Environment,
    EnvironmentFailure,
    Observation,
    close_environment,
    environment_code,
    offered,
    settled,
)
from rla.envs.pool import Environments, environments
from rla.envs.protocols import PolicyPrompt, ToolPrompt, told_schemas
from rla.envs.registry import environment
from rla.errors import UserError
from rla.llm.base import Generator, Request, UnusableReply, replies_to
from rla.llm.chat import ChatFormat
from rla.metrics.custom import joined_figures, told_figures
from rla.models.checkpoint import model_folder
from rla.models.load import load_tokenizer, tokenizer_fingerprint
from rla.pictures.prompts import shows_images
from rla.pictures.shard import distinct_images, finish_images, image_rows, image_shard, without_pngs
from rla.pictures.vision import PictureChat, VisionFormat, vision_for
from rla.pipeline import StageContext
from rla.pipeline.origins import check_failures, run_async
from rla.rollouts.first_replies import FirstReplies
from rla.seeds import derive
from rla.store.atomic import WHOLE, Slice
from rla.store.manifest import Origin, digest
from rla.store.reading import group_of, read_part, shard_parts
from rla.store.records import Status, Step, StopReason, Task, Trajectory, content_id
from rla.store.shards import ShardWriter

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One episode to play: rollout number `rollout` of `task`."""

    task: Task
    rollout: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """Everything that the episodes of one stage share."""

    generator: Generator
    chat: ChatFormat
    prompt: PolicyPrompt
    config: PolicyConfig
    env: EnvConfig
    make_env: Callable[[Task], Environment | AwaitedEnvironment]
    iteration: int
    policy: str  # digest of the checkpoint
    top_p: float = 1.0  # of sampling; below 1 for evaluation alone (`evaluation.top_p`)
    vision: VisionFormat | None = None  # of a policy that sees the pictures of observations
    replied: Callable[[Step, Sequence[int]], None] | None = None  # called with every reply (`FirstReplies.replied`)


def episodes_of(task: Task, *, count: int, seed: int, iteration: int) -> list[Episode]:
    """The `count` episodes of a task, each with its own derived seed."""
    return [
        Episode(task=task, rollout=rollout, seed=derive(seed, task.task_id, rollout, iteration))
        for rollout in range(count)
    ]


async def play(episode: Episode, shared: Rollouts, tries: CommandTries) -> Trajectory:
    """Play one episode to its end. An environment that fails ends it with `env_error`, not the run."""
    task, config = episode.task, shared.config
    agent = PolicyAgent(
        chat=shared.chat,
        prompt=shared.prompt,
        config=config,
        tries=tries,
        instruction=task.instruction,
        pictures=None if shared.vision is None else PictureChat(shared.chat, shared.vision),
    )
    named, session = f"environment {task.env}, task {task.task_id}", f"{task.task_id}/{episode.rollout}"
    steps: list[Step] = []
    seen: list[Observation] = []
    stop, error = StopReason.MAX_STEPS, None
    env: Environment | AwaitedEnvironment | None = None

    async def observe(call: Callable[..., Any], *arguments: str) -> Observation:
        """The observation that a method of the environment returns, at once or later."""
        with environment_code(named):
            found: Observation = await settled(call(*arguments))
            if (vision := shared.vision) is not None:
                try:
                    for png in found.images:
                        vision.grid(png)
                except ValueError as error:
                    raise EnvironmentFailure(f"a picture of the environment: {error}") from None
            seen.append(found)
            return found

    def won() -> bool:
        return seen[-1].success(shared.env.reward_threshold)

    try:
        with environment_code(named):
            env = shared.make_env(task)
        observation = await observe(env.reset)
        for index in range(shared.env.max_steps):
            commands = offered(observation.commands, shared.env.omit_commands)
            prompt_ids, trie = agent.prompt(observation, commands)
            room = agent.room(shared.generator.context)
            if room is None:
                stop = StopReason.CONTEXT
                break
            request = Request(
                prompt_ids=prompt_ids,
                max_tokens=room,
                temperature=config.temperature,
                seed=derive(episode.seed, index),
                session=session,
                allowed=trie,
                top_p=shared.top_p,
                images=tuple(agent.segment.images),
                turns=agent.segment.turns,
            )
            (completion,) = await replies_to(shared.generator, request)
            steps.append(agent.read(completion, observation.text, commands))
            if isinstance(env, Converses):
                with environment_code(named):
                    env.replied(steps[-1])
            observation = await observe(env.step, steps[-1].action)
            if not observation.understood:
                steps[-1] = replace(steps[-1], valid=False)
            if shared.replied is not None:
                shared.replied(steps[-1], prompt_ids)  # the agent's own list, which holds the reply by now
            if won() or observation.done:
                stop = StopReason.WON if won() else StopReason.ENDED
                break
        if stop in (StopReason.MAX_STEPS, StopReason.CONTEXT) and steps and isinstance(env, Concludes):
            await observe(env.stopped)
            stop = StopReason.WON if won() else stop
    except (EnvironmentFailure, UnusableReply) as failure:
        stop, error = StopReason.ENV_ERROR, str(failure)
    finally:
        shared.generator.release(session)
        if env is not None:
            close_environment(env, named)
    places = [None if one.place is None else content_id(one.place) for one in seen[: len(steps)]]
    calls = [{"step": n, "status": result.status} for n, one in enumerate(seen[1:]) for result in one.results]
    return Trajectory(
        trajectory_id=content_id(task.task_id, str(shared.iteration), str(episode.rollout)),
        task_id=task.task_id,
        slot=task.slot,
        status=Status(task.status).value,
        iteration=shared.iteration,
        rollout=episode.rollout,
        seed=episode.seed,
        outcome=1 if stop is StopReason.WON else -1,
        stop_reason=stop.value,
        instruction=task.instruction,
        kind=task.kind,
        policy=shared.policy,
        steps=steps,
        segments=agent.segments(),
        final_observation=seen[-1].text if seen else "",
        error=error,
        reward=next((one.reward for one in reversed(seen) if one.reward is not None), None),
        images=distinct_images([one.images for one in seen]),
        places=places if any(places) else None,
        calls=calls if isinstance(shared.prompt, ToolPrompt) else None,
        image_spans=agent.image_spans(),
    )


async def play_groups(
    groups: Iterable[Sequence[Episode]],
    shared: Rollouts,
    *,
    concurrency: int,
    finished: Callable[[int, list[Trajectory]], None],
) -> None:
    """Play all groups; `finished(index, trajectories)` is called as each group completes."""
    tries = CommandTries(shared.chat)
    await run_groups(groups, lambda episode: play(episode, shared, tries), concurrency=concurrency, finished=finished)


async def run_groups(
    groups: Iterable[Sequence[Item]],
    one: Callable[[Item], Awaitable[Result]],
    *,
    concurrency: int,
    finished: Callable[[int, list[Result]], None],
) -> None:
    """Run `one` for every member of every group; `finished(position, results)` as each group is complete.

    Members start in order, at most `concurrency` at a time; no group waits for another. A group is taken from its
    iterable when one of its members can start, and forgotten when it is handed over, so memory depends on
    `concurrency`, not on the number of groups. An exception of a member, of `finished` or of the iterable cancels the
    rest and is raised inside an exception group.
    """
    gate = asyncio.Semaphore(concurrency)

    async def member(position: int, size: int, results: dict[int, Result], place: int, item: Item) -> None:
        try:
            results[place] = await one(item)
        finally:
            gate.release()
        if len(results) == size:
            finished(position, [results[place] for place in range(size)])

    async with asyncio.TaskGroup() as tasks:
        for position, items in enumerate(groups):
            results: dict[int, Result] = {}
            if not items:
                finished(position, [])
            for place, item in enumerate(items):
                await gate.acquire()
                tasks.create_task(member(position, len(items), results, place, item))


class TrajectoryWriter(ShardWriter):
    """Writes a trajectory shard and, if the environment shows models pictures, the shard of those: each part of them
    before the part of the trajectories that names them.
    """

    def __init__(self, ctx: StageContext, folder: Path, made_from: Origin, *, part: Slice = WHOLE) -> None:
        overwrite, tell = ctx.overwrite, ctx.progress.note
        super().__init__(folder, "trajectories", made_from, overwrite=overwrite, part=part, tell=tell)
        pictured = shows_images(environment(ctx.config.env.name), ctx.config)
        self.pictures = image_shard(self, overwrite=overwrite, tell=tell) if pictured else None

    def has(self, group: int) -> bool:
        """Whether a group is complete: its episodes, and their pictures."""
        pictures = self.pictures
        return group in self.done and (pictures is None or pictures.complete or group in pictures.done)

    def keep(self, group: int, trajectories: list[Trajectory]) -> None:
        """Write a part, and before it the part of its pictures."""
        if self.pictures is not None:
            self.begin()
            if group in self.done:  # earlier trajectories would name pictures that are replaced
                self.discard(self.part(group))
            self.pictures.write(group, image_rows(trajectories))
            trajectories = list(map(without_pngs, trajectories))
        self.write(group, [trajectory.row() for trajectory in trajectories])

    def forget(self, part: Path) -> None:
        """Remove a part, whose group the next call plays again."""
        self.discard(part)
        if self.pictures is not None:
            self.pictures.discard(self.pictures.part(group_of(part)))

    def complete_shard(
        self, *, tokenizer: str | None = None, check: Callable[[Mapping[str, int]], None] = lambda counts: None
    ) -> None:
        """Finish the shards with the counts of all parts, once `check` accepts the counts of the whole."""

        def accept(counts: Mapping[str, int]) -> None:
            check(counts)
            if self.pictures is not None:
                finish_images(self.pictures, self.folder)

        self.finish(trajectory_counts(self.parts()), tokenizer=tokenizer, check=accept)


def play_shard(
    ctx: StageContext,
    writer: TrajectoryWriter,
    tasks: Sequence[Task],
    policy: Path,
    *,
    count: int,
    iteration: int,
    training: bool = True,
    reserve: Sequence[Task] = (),
) -> None:
    """Play `count` episodes of each task of the writer's slice that has no part yet, and finish the shard.

    `training`: it may be trained on. `reserve`: tasks that follow until enough groups are mixed (`filling_rounds`).
    """
    known = [*tasks, *reserve]
    own = [index for index in range(len(known)) if writer.slice.takes(index)]
    first_replies = FirstReplies(ctx, "no-action", policy, aloud=writer.slice.takes(0))
    rounds = filling_rounds(
        [index for index in own if index < len(tasks)],
        [index for index in own if index < len(tasks) and tasks[index].status == Status.ACTIVE],
        [index for index in own if index >= len(tasks)],
        lambda index: is_mixed(read_part(writer.part(index), ["outcome", "stop_reason"]).to_pylist()),
    )

    def left_of_rounds() -> Iterator[list[int]]:
        for indices in rounds:
            left = [index for index in indices if not writer.has(index)]
            ctx.progress.start("rollout", total=count * len(left))
            if left:
                yield left

    def finished(left: list[int], position: int, trajectories: list[Trajectory]) -> None:
        writer.keep(left[position], trajectories)
        ctx.progress.advance(len(trajectories))

    async def play_rounds(rounds_left: Iterable[list[int]], shared: Rollouts, made: Environments) -> None:
        seed, concurrency = ctx.config.seed, ctx.config.rollout.concurrency
        try:
            for left in rounds_left:
                groups = (episodes_of(known[index], count=count, seed=seed, iteration=iteration) for index in left)
                await play_groups(groups, shared, concurrency=concurrency, finished=partial(finished, left))
        finally:
            await made.close()

    remaining = left_of_rounds()
    if (begun := next(remaining, None)) is not None:
        with environments(ctx.config, note=ctx.progress.note) as made:
            shared = _load_rollouts(ctx, policy, made, training=training, first=first_replies)
            run_async(play_rounds(chain([begun], remaining), shared, made))
            shared.generator.close()
        first_replies.end()
        if figures := joined_figures(made.figures()):
            ctx.measured.update(figures)
            if told := told_figures(figures):
                ctx.progress.note(told)
    tokenizer = tokenizer_fingerprint(model_folder(policy))
    writer.complete_shard(tokenizer=tokenizer, check=partial(_refuse_failed, ctx, writer))


def _load_rollouts(
    ctx: StageContext, policy: Path, made: Environments, *, training: bool, first: FirstReplies
) -> Rollouts:
    """The engine over the checkpoint `policy`, and all else that the episodes of the stage share. Raises UserError."""
    from rla.llm.factory import make_generator

    config, model = ctx.config, model_folder(policy)
    chosen = environment(config.env.name)
    prompt = chosen.policy_prompt(config)
    if told_schemas(prompt):  # before an engine loads the model
        check_calls(ChatFormat(load_tokenizer(model)), prompt, taught=bool(config.warm_start.enabled))
    generator, tokenizer = make_generator(config.generator, model=model, seed=config.seed, training=training)
    chat = ChatFormat(tokenizer)
    first.begin(chat)
    return Rollouts(
        generator=generator,
        chat=chat,
        prompt=prompt,
        config=config.policy,
        env=config.env,
        make_env=made.make,
        iteration=ctx.iteration,
        policy=digest(policy),
        # a trainer renormalises over all ids that were offered
        top_p=1.0 if training else config.evaluation.top_p,
        vision=vision_for(chosen, config, model),
        replied=first.replied,
    )


def _refuse_failed(ctx: StageContext, writer: TrajectoryWriter, counts: Mapping[str, int]) -> None:
    """Raises UserError if more than `rollout.max_failed_share` of the shard's episodes failed, or ended before their
    first reply because not even the first prompt fits. Groups with failed episodes are played again by the next call.
    """
    config, share, episodes = ctx.config, ctx.config.rollout.max_failed_share, counts["episodes"]
    parts = shard_parts(writer.folder)
    try:
        check_failures(writer.folder, counts["env_errors"], episodes, share)
    except UserError:
        for part in parts:
            if StopReason.ENV_ERROR in read_part(part, ["stop_reason"])["stop_reason"].to_pylist():
                writer.forget(part)
        raise
    if not counts["context_stops"]:
        return
    rows = (row for part in parts for row in read_part(part, ["stop_reason", "steps.list.element.valid"]).to_pylist())
    unbegun = sum(row["stop_reason"] == StopReason.CONTEXT and not row["steps"] for row in rows)
    if unbegun > share * episodes:
        raise UserError(
            f"{unbegun} of {episodes} episodes end before their first reply: the first prompt and a reply of "
            f"policy.max_tokens {config.policy.max_tokens} do not fit generator.context {config.generator.context}; "
            "raise generator.context (a new model has model.context tokens), or lower policy.max_tokens"
        )


def is_mixed(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a group was won and lost. `rows`: outcome, stop_reason; broken episodes are ignored."""
    return {row["outcome"] for row in rows if row["stop_reason"] != StopReason.ENV_ERROR} == {1, -1}


def filling_rounds(
    first: Sequence[int], active: Sequence[int], reserve: Sequence[int], mixed: Callable[[int], bool]
) -> Iterator[list[int]]:
    """The groups of each round, by index: tasks are played until enough groups are mixed, within a budget (dynamic
    sampling: DAPO, Yu et al. 2025). `first`: the whole first round; `active`: its groups that should be mixed.
    `mixed(index)` is asked about a group that has been played, once its round has ended.

    A group is the episodes of one task. A group that was won and lost trains; one that was always won, or always lost,
    has no advantages. Each further round plays as many tasks of the reserve as would reach the target at the rate so
    far, (mixed + 1) / (played + 2), until nothing is missing or the reserve is empty.

    A round begins when the one before it has ended, so it does not depend on which episode ends first, and a call that
    resumes after a kill finds the same rounds. Every slice (`--slice`, `--workers`) fills its own share, so here the
    number of slices does change which tasks are played.
    """
    yield list(first)
    played, left = list(active), list(reserve)
    while left:
        found = sum(map(mixed, played))
        size = ceil((len(active) - found) * (len(played) + 2) / (found + 1))
        if size <= 0:
            return
        yield left[:size]
        played, left = played + left[:size], left[size:]


def trajectory_counts(parts: Sequence[Path]) -> dict[str, int]:
    """Counts over trajectory parts, including parts of an interrupted call."""
    names = ("episodes", "won", "steps", "invalid_actions", "truncated", "context_stops", "env_errors")
    counts = dict.fromkeys(names, 0)
    columns = ["stop_reason", "steps.list.element.valid", "steps.list.element.truncated"]
    for part in parts:
        for row in read_part(part, columns).to_pylist():
            counts["episodes"] += 1
            counts["won"] += row["stop_reason"] == StopReason.WON
            counts["context_stops"] += row["stop_reason"] == StopReason.CONTEXT
            counts["env_errors"] += row["stop_reason"] == StopReason.ENV_ERROR
            counts["steps"] += len(row["steps"])
            counts["invalid_actions"] += sum(not step["valid"] for step in row["steps"])
            counts["truncated"] += sum(step["truncated"] for step in row["steps"])
    return counts
