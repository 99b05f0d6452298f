"""A conversations shard: played by a teacher, with a part for each question, or chosen from earlier episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rla.config import Config
from rla.envs.pool import environments
from rla.envs.protocols import PolicyPrompt, need
from rla.envs.registry import environment
from rla.errors import UserError
from rla.pipeline import StageContext
from rla.pipeline.origins import check_failures, run_async
from rla.rollouts.play import run_groups
from rla.store.reading import read_part
from rla.store.records import Task
from rla.store.shards import ShardWriter
from rla_programs.collecting.conversations import Conversation
from rla_programs.collecting.params import SECTION, TEACHER_KEY, collect_params
from rla_programs.collecting.playing import Lessons, Stitches, stitched_conversation, taught
from rla_programs.collecting.published import conversations_at
from rla_programs.collecting.rebuilding import played_conversations, step_means
from rla_programs.collecting.selecting import grouped_by_text, kept_of_all, kept_of_question
from rla_programs.collecting.teachers import ServerTeacher, SolverTeacher, Solves, Teacher

ROWS = 256  # of a part with chosen conversations
Played = tuple[Task, int]  # and the number of the episode
Finished = Callable[[int, list[Conversation | None]], None]


def _teacher_of(config: Config, prompt: PolicyPrompt) -> Teacher:
    """Raises UserError if the environment has no solver."""
    own = collect_params(config)
    if own.teacher == "solver":
        instead = "set collect.teacher: server, or give --trajectories"
        solver = need(environment(config.env.name), Solves, "collect", instead=instead)
        return SolverTeacher(solver=solver, config=config)
    from rla_bridges.engines.chat_server import ChatServer

    server = ChatServer(own.server, section=f"{SECTION}.server", asked="a reply", secret=TEACHER_KEY)
    return ServerTeacher(server=server, prompt=prompt, config=config, name=own.server.model)


def play_conversations(ctx: StageContext, writer: ShardWriter, tasks: Sequence[Task]) -> None:
    """Conversations for `collect.episodes` episodes of each task of the writer's slice, a part for each question;
    finishes the shard. A question with a failed episode is written at the end if few enough have failed. Otherwise the
    next call plays it again.
    """
    config, own = ctx.config, collect_params(ctx.config)
    count = own.episodes
    groups = [[tasks[place] for place in places] for places in grouped_by_text([task.instruction for task in tasks])]
    left = [place for place in range(len(groups)) if writer.slice.takes(place) and place not in writer.done]
    total = count * sum(len(groups[place]) for place in left)
    ctx.progress.start("collect", total=total)
    late: dict[int, list[Conversation]] = {}
    failed = 0

    def finished(position: int, results: list[Conversation | None]) -> None:
        nonlocal failed
        found = [one for one in results if one is not None]
        failed += len(results) - len(found)
        ctx.progress.advance(len(results))
        if len(found) < len(results):
            late[left[position]] = found
        else:
            keep(left[position], found)

    def keep(place: int, found: list[Conversation]) -> None:
        writer.write(place, [one.row() for one in kept_of_question(found, own)])

    episodes = ([(task, number) for task in groups[place] for number in range(count)] for place in left)
    if own.variant == "stitched":
        stitcher = need(environment(config.env.name), Stitches, "collect", instead="set collect.variant: real")
        for position, items in enumerate(episodes):
            made = [stitched_conversation(task, stitcher, config, episode=number) for task, number in items]
            finished(position, list(made))
    elif left:
        _play(ctx, episodes, finished)
    check_failures(writer.folder, failed, total, config.rollout.max_failed_share)
    for place, found in sorted(late.items()):
        keep(place, found)
    writer.finish(_conversation_counts(writer.parts()))


def _play(ctx: StageContext, episodes: Iterable[Sequence[Played]], finished: Finished) -> None:
    """Play the episodes with the teacher, in the environments of the stage."""
    prompt = environment(ctx.config.env.name).policy_prompt(ctx.config)
    teacher = _teacher_of(ctx.config, prompt)
    with environments(ctx.config, note=ctx.progress.note) as made:
        shared = Lessons(teacher=teacher, prompt=prompt, env=ctx.config.env, make_env=made.make, seed=ctx.config.seed)

        async def one(item: Played) -> Conversation | None:
            return await taught(*item, shared)

        async def played() -> None:
            try:
                await run_groups(episodes, one, concurrency=ctx.config.rollout.concurrency, finished=finished)
            finally:
                await made.close()

        run_async(played())


def choose_conversations(
    ctx: StageContext,
    writer: ShardWriter,
    *,
    trajectories: Sequence[Path],
    scores: Sequence[Path],
    files: Sequence[Path],
) -> None:
    """The best of the earlier conversations, in parts of ROWS. Raises UserError if none is left."""
    prompt = environment(ctx.config.env.name).policy_prompt(ctx.config)
    found = list(played_conversations(trajectories, prompt, step_means(scores)))
    for path in files:
        found += conversations_at(path, tell=ctx.progress.note)
    own = collect_params(ctx.config)
    kept = kept_of_all(found, own)
    if not kept:
        raise UserError(
            f"{writer.folder}: collect.outcome: {own.outcome} keeps none of {len(found)} conversations; "
            "set it to all, or give others"
        )
    ctx.progress.start("collect", total=len(kept))
    for place, start in enumerate(range(0, len(kept), ROWS)):
        if place not in writer.done:
            writer.write(place, [one.row() for one in kept[start : start + ROWS]])
        ctx.progress.advance(len(kept[start : start + ROWS]))
    writer.finish(_conversation_counts(writer.parts()))


def _conversation_counts(parts: Sequence[Path]) -> dict[str, int]:
    """Counts over all parts, including those of an interrupted call."""
    rows = [row for part in parts for row in read_part(part, ["outcome", "messages.list.element.role"]).to_pylist()]
    return {
        "conversations": len(rows),
        "won": sum(row["outcome"] == 1 for row in rows),
        "replies": sum(one["role"] == "assistant" for row in rows for one in row["messages"]),
    }
