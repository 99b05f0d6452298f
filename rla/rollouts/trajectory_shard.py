"""A trajectory shard: every task of the stage is played so many times by the policy, a part for each task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any

from rla.agents.policy import check_calls
from rla.envs.pool.hosting import Environments, environments
from rla.envs.prompts import told_schemas
from rla.envs.registry import environment
from rla.errors import UserError
from rla.metrics.custom import joined_figures, told_figures
from rla.models.checkpoint import model_folder
from rla.models.load import tokenizer_fingerprint
from rla.pictures.prompts import shows_images
from rla.pictures.shard import ImageShard, image_rows, without_pngs
from rla.pictures.vision import vision_for
from rla.pipeline.context import StageContext
from rla.pipeline.origins import check_failures, run_async
from rla.rollouts.first_group import FirstGroup
from rla.rollouts.play import Episode, Rollouts, episodes_of, play_groups
from rla.store.digests import digest
from rla.store.reading import group_of, read_nested, read_part
from rla.store.records import Status, StopReason, Task, Trajectory
from rla.store.shards import ShardWriter

STOPPED = ("stop_reason", "steps.list.element.valid")
Finished = Callable[[int, list[Trajectory]], None]
Wave = tuple[Iterable[Sequence[Episode]], Finished]  # groups that are played together, and what follows each of them


def is_mixed(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a group was won and lost. `rows`: outcome, stop_reason; episodes that the environment broke count not."""
    return {row["outcome"] for row in rows if row["stop_reason"] != StopReason.ENV_ERROR} == {1, -1}


def round_size(*, mixed: int, played: int, target: int) -> int:
    """How many more tasks would fill the target at the rate seen so far; 0 where it is reached."""
    missing = target - mixed
    return max(0, ceil(missing * (played + 2) / (mixed + 1)))


def filling_rounds(
    first: Sequence[int], active: Sequence[int], reserve: Sequence[int], mixed: Callable[[int], bool]
) -> Iterator[list[int]]:
    """The groups of each round, by index: tasks are played until enough groups are mixed, within a budget (dynamic
    sampling: DAPO, Yu et al. 2025). `first`: the whole first round; `active`: those of it that are to be mixed.
    `mixed(index)` says it of a group that has been played: it is asked once the round before has ended.

    A group is the episodes of one task. One that was won and lost trains; one that was always won, or always lost, has
    no advantages. Each further round plays as many tasks of the reserve as would fill up what is missing at the rate
    seen so far, (mixed + 1) / (played + 2), until nothing is missing or the reserve is empty.

    A round begins when the one before it has ended: so it does not depend on which episode ends first, and a call that
    goes on after a kill finds the same rounds. Every slice (`--slice`, `--workers`) fills its own share, so here the
    number of slices does change what is played.
    """
    yield list(first)
    played, left = list(active), list(reserve)
    while left:
        size = round_size(mixed=sum(map(mixed, played)), played=len(played), target=len(active))
        if size == 0:
            return
        yield left[:size]
        played, left = played + left[:size], left[size:]


def play_shard(
    ctx: StageContext,
    writer: ShardWriter,
    tasks: Sequence[Task],
    policy: Path,
    *,
    count: int,
    iteration: int,
    training: bool = True,
    reserve: Sequence[Task] = (),
    images: ImageShard | None = None,
) -> None:
    """Play `count` episodes of each task of the writer's slice that has no part yet, and finish the shard.

    `training`: it may be trained on. `reserve`: tasks that follow until enough groups are mixed
    (`filling_rounds`). `images`: where their pictures go.
    """
    known = [*tasks, *reserve]
    own = [index for index in range(len(known)) if writer.slice.takes(index)]
    rounds = filling_rounds(
        [index for index in own if index < len(tasks)],
        [index for index in own if index < len(tasks) and tasks[index].status == Status.ACTIVE],
        [index for index in own if index >= len(tasks)],
        lambda index: is_mixed(read_nested(writer.part(index), ["outcome", "stop_reason"])),
    )

    def waves() -> Iterator[Wave]:
        """What is left of each round, until the last one has ended."""
        for indices in rounds:
            left = [index for index in indices if not is_done(index)]
            ctx.progress.start("rollout", total=count * len(left))
            if left:
                yield (episodes(known[index]) for index in left), partial(finished, left)

    is_done = partial(is_kept, writer, images)

    def episodes(task: Task) -> list[Episode]:
        return episodes_of(task, count=count, seed=ctx.config.seed, iteration=iteration)

    total = count * len(own)
    first_group = FirstGroup(ctx, "no-action", policy, aloud=writer.slice.takes(0))
    unbegun = Unbegun(ctx, total=total)

    def finished(left: list[int], position: int, trajectories: list[Trajectory]) -> None:
        keep_episodes(writer, images, left[position], trajectories)
        ctx.progress.advance(len(trajectories))
        unbegun.add(trajectories)

    found = waves()
    if (wave := next(found, None)) is not None:
        with environments(ctx.config, note=ctx.progress.note) as made:
            _play_in(ctx, chain([wave], found), policy, made, training=training, first=first_group)
        first_group.end()
        if figures := joined_figures(made.figures()):
            ctx.measured.update(figures)
            if told := told_figures(figures):
                ctx.progress.note(told)

    def check(counts: Mapping[str, int]) -> None:
        if counts["env_errors"] > ctx.config.rollout.max_failed_share * counts["episodes"]:
            forget_failed(writer, images)
        check_failures(writer.folder, counts["env_errors"], counts["episodes"], ctx.config.rollout.max_failed_share)
        unbegun.check(writer.folder, counts)
        if images is not None:
            images.finish()

    if images is not None:
        images.finish_slice()
    tokenizer = tokenizer_fingerprint(model_folder(policy))
    writer.finish(trajectory_counts(writer.parts()), tokenizer=tokenizer, check=check)


class Unbegun:
    """Episodes that end before their first reply, because not even the first prompt fits. The task's difficulty is not
    to blame: if they are more than `rollout.max_failed_share`, the stage fails as soon as that is certain.
    """

    def __init__(self, ctx: StageContext, *, total: int) -> None:
        self._ctx, self._total, self._count = ctx, total, 0

    def add(self, trajectories: Sequence[Trajectory]) -> None:
        """UserError once they are too many, whatever becomes of the others of `total`."""
        self._count += sum(one.stop_reason == StopReason.CONTEXT and not one.steps for one in trajectories)
        self._refuse(self._count, self._total)

    def check(self, folder: Path, counts: Mapping[str, int]) -> None:
        """The same of a whole shard, some of which other calls have played."""
        if counts["context_stops"]:
            rows = [row for part in folder.glob("part-*.parquet") for row in read_nested(part, list(STOPPED))]
            unbegun = sum(row["stop_reason"] == StopReason.CONTEXT and not row["steps"] for row in rows)
            self._refuse(unbegun, counts["episodes"])

    def _refuse(self, count: int, total: int) -> None:
        policy, context = self._ctx.config.policy, self._ctx.config.generator.context
        if count <= self._ctx.config.rollout.max_failed_share * total:
            return
        raise UserError(
            f"{count} of {total} episodes end before their first reply: the first prompt and a reply of "
            f"policy.max_tokens {policy.max_tokens} do not fit generator.context {context}; raise generator.context (a "
            "new model has model.context tokens), or lower policy.max_tokens"
        )


def keep_episodes(writer: ShardWriter, images: ImageShard | None, group: int, trajectories: list[Trajectory]) -> None:
    """A part of the shard, and before it that of the pictures, where they go into a shard of their own."""
    if images is not None:
        images.keep(group, image_rows(trajectories))
        trajectories = list(map(without_pngs, trajectories))
    writer.write(group, [trajectory.row() for trajectory in trajectories])


def is_kept(writer: ShardWriter, images: ImageShard | None, group: int) -> bool:
    """Whether a group is there whole: its episodes, and their pictures."""
    return group in writer.done and (images is None or images.done(group))


def image_shard(ctx: StageContext, writer: ShardWriter) -> ImageShard | None:
    """Where the pictures of the writer's trajectories go; None where the environment shows no model any."""
    if not shows_images(environment(ctx.config.env.name), ctx.config):
        return None
    return ImageShard(writer, overwrite=ctx.overwrite, tell=ctx.progress.note)


def _play_in(
    ctx: StageContext,
    waves: Iterable[Wave],
    policy: Path,
    made: Environments,
    *,
    training: bool,
    first: FirstGroup,
) -> None:
    """Play the groups of each wave in the environments of `made`, one wave after the other."""
    from rla.llm.chat import ChatFormat
    from rla.llm.factory import make_generator
    from rla.models.load import load_tokenizer

    prompt = environment(ctx.config.env.name).policy_prompt(ctx.config)
    if told_schemas(prompt):  # before an engine loads the model
        chat = ChatFormat(load_tokenizer(model_folder(policy)))
        check_calls(chat, prompt, taught=bool(ctx.config.warm_start.enabled))
    generator, tokenizer = make_generator(
        ctx.config.generator, model=model_folder(policy), seed=ctx.config.seed, training=training
    )
    chat = ChatFormat(tokenizer)
    first.begin(chat)
    shared = Rollouts(
        generator=generator,
        chat=chat,
        prompt=prompt,
        config=ctx.config.policy,
        env=ctx.config.env,
        make_env=made.make,
        iteration=ctx.iteration,
        policy=digest(policy),
        # a trainer renormalises over all ids that were offered
        top_p=1.0 if training else ctx.config.evaluation.top_p,
        vision=vision_for(environment(ctx.config.env.name), ctx.config, model_folder(policy)),
        replied=first.replied,
    )

    async def played() -> None:
        try:
            for groups, finished in waves:
                await play_groups(groups, shared, concurrency=ctx.config.rollout.concurrency, finished=finished)
        finally:
            await made.close()

    run_async(played())
    generator.close()


def trajectory_counts(parts: Sequence[Path]) -> dict[str, int]:
    """Counts over trajectory parts, those of an interrupted call included."""
    names = ("episodes", "won", "steps", "invalid_actions", "truncated", "context_stops", "env_errors")
    counts = dict.fromkeys(names, 0)
    for part in parts:
        for row in read_nested(part, ["stop_reason", "steps.list.element.valid", "steps.list.element.truncated"]):
            counts["episodes"] += 1
            counts["won"] += row["stop_reason"] == StopReason.WON
            counts["context_stops"] += row["stop_reason"] == StopReason.CONTEXT
            counts["env_errors"] += row["stop_reason"] == StopReason.ENV_ERROR
            counts["steps"] += len(row["steps"])
            counts["invalid_actions"] += sum(not step["valid"] for step in row["steps"])
            counts["truncated"] += sum(step["truncated"] for step in row["steps"])
    return counts


def forget_failed(writer: ShardWriter, images: ImageShard | None = None) -> None:
    """Remove the parts that hold failed episodes, so that the next call plays those groups again."""
    for part in sorted(writer.folder.glob("part-*.parquet")):
        if StopReason.ENV_ERROR in read_part(part, ["stop_reason"])["stop_reason"].to_pylist():
            writer.discard(part)
            if images is not None:
                images.forget(group_of(part))
