"""A scores shard: what the reward model says of a trajectory shard, as `score-steps` and `evaluate` ask for it.

The environment says what is asked: a judgement of every step (`Judged`), or replies about whole tasks (`Probes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.envs.prompts import JudgePrompt
from rla.envs.protocols import Judged, Prober, Probes, need
from rla.envs.registry import environment
from rla.errors import UserError
from rla.llm.chat import ChatFormat
from rla.models.checkpoint import model_folder
from rla.models.load import tokenizer_fingerprint
from rla.pictures.prompts import shows_images
from rla.pictures.shard import images_folder, refuse_other_images, with_pngs
from rla.pictures.vision import vision_for
from rla.pipeline.context import StageContext
from rla.pipeline.origins import check_failures, run_async
from rla.rollouts.first_group import FirstGroup
from rla.rollouts.judge import (
    EngineReplier,
    Judging,
    Probing,
    Replier,
    ServerReplier,
    judge_groups,
    probe_tasks,
    reply_trie,
)
from rla.store.pools import tasks_by_id
from rla.store.reading import Entry, part_rows, read_manifest, read_nested, verify_shard
from rla.store.records import StepScore, Task
from rla.store.shards import ShardWriter

PLAYED = ("task_id", "trajectory_id", "steps.list.element.valid")
COLUMNS = ("task_id", "trajectory_id", "instruction", "steps", "final_observation", "stop_reason", "screens")

FINDS_PREFIXES = ("vllm", "server")
FAILED = "failed"  # count of the replies that a chat server has not given; no other shard has it

Finished = Callable[[int, list[StepScore]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedTask:
    """The trajectories of one task: where they lie, how many steps they have. Rows are read when it is their turn."""

    task_id: str
    parts: Mapping[Path, Entry]  # each with what the manifest says of it
    steps: int
    only: frozenset[str] | None = None

    def rows(self) -> list[dict[str, Any]]:
        """Those that have steps, in order; of those with an id in `only` where it is given."""
        found: list[dict[str, Any]] = []
        for part, entry in self.parts.items():
            rows = part_rows(part, COLUMNS, keys={self.task_id}, kind="trajectories", entry=entry)
            found += with_pngs(part, [row for row in rows if row["steps"] and self._wants(row)])
        return found

    def _wants(self, row: Mapping[str, Any]) -> bool:
        return self.only is None or row["trajectory_id"] in self.only


def played_tasks(trajectories: Path, only: frozenset[str] | None = None) -> list[PlayedTask]:
    """The tasks of a trajectory shard that have steps to judge, in order. Damage of the shard is found here.

    `only`: ids of the trajectories that are judged; none: all.
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
    """Scores for every played task of the writer's slice that has no part yet. `pools`: options of the folders that
    hold the tasks, for environments that have to know them. `only`: as `played_tasks` takes it. `rm`: the checkpoint
    of the reward model, where it judges itself.
    """
    chosen = environment(ctx.config.env.name)
    if images_folder(trajectories).exists() and shows_images(chosen, ctx.config):
        refuse_other_images(trajectories)
    groups = enumerate(played_tasks(trajectories, only))
    left = [(index, task) for index, task in groups if index not in writer.done and writer.slice.takes(index)]
    ctx.progress.start("score-steps", total=sum(task.steps for _, task in left))
    if not left:
        return
    tasks = [task for _, task in left]
    asked = chosen.prober(ctx.config) if isinstance(chosen, Probes) else None
    prompt = None if asked else need(chosen, Judged, "score-steps").judge_prompt(ctx.config)
    known = known_tasks(ctx, tasks, pools) if asked else {}
    replier = make_replier(ctx.config, rm, prompt)
    first = FirstGroup(ctx, "unreadable-votes", rm, aloud=writer.slice.takes(0))
    first.begin(replier.chat if isinstance(replier, EngineReplier) else None)

    def finished(position: int, scores: list[StepScore]) -> None:
        writer.write(left[position][0], [score.row() for score in scores])
        ctx.progress.advance(len(scores))

    if asked is not None:
        _probe(ctx, ((known[task.task_id], task.rows()) for task in tasks), asked, replier, first, finished)
    elif prompt is not None:
        _judge(ctx, (task.rows() for task in tasks), prompt, replier, first, finished)
    replier.close()
    first.end()


def make_replier(config: Config, rm: Path | None, prompt: JudgePrompt | None) -> Replier:
    """The engine over the reward model `rm`, or the chat server where there is none. Raises UserError.

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


def _judge(
    ctx: StageContext,
    groups: Iterable[Sequence[dict[str, Any]]],
    prompt: JudgePrompt,
    replier: Replier,
    first: FirstGroup,
    finished: Finished,
) -> None:
    engine = ctx.config.generator.engine_name if ctx.config.judge.trains else "server"
    shared = Judging(
        replier=replier,
        prompt=prompt,
        seed=ctx.config.seed,
        at_once=engine in FINDS_PREFIXES,
        images=ctx.config.judge.images,
        voted=first.voted,
    )
    run_async(judge_groups(groups, shared, concurrency=trajectories_at_once(ctx.config), finished=finished))


def _probe(
    ctx: StageContext,
    tasks: Iterable[tuple[Task, list[dict[str, Any]]]],
    prober: Prober,
    replier: Replier,
    first: FirstGroup,
    finished: Finished,
) -> None:
    shared = Probing(replier=replier, prober=prober, seed=ctx.config.seed, voted=first.voted)
    run_async(probe_tasks(tasks, shared, concurrency=ctx.config.rollout.concurrency, finished=finished))


def known_tasks(ctx: StageContext, tasks: Sequence[PlayedTask], pools: Sequence[str]) -> dict[str, Task]:
    """The rows of the tasks that were played. Raises UserError where one is in none of the pools."""
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


def trajectories_at_once(config: Config) -> int:
    """With an engine of fixed slots: half of them hold prompts, the others are for judgements that part from the first.

    Without that room a prompt's slot would be taken from it before its next step.
    """
    if config.generator.backend != "transformers" or not config.judge.trains:
        return config.rollout.concurrency
    return max(1, min(config.rollout.concurrency, config.generator.max_sequences // min(config.judge.votes, 2)))


def score_counts(parts: Sequence[Path], config: Config) -> dict[str, int]:
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


def finish_scores(ctx: StageContext, writer: ShardWriter, rm: Path | None) -> None:
    """Finish the shard of what the reward model `rm` (None: a chat server, or nobody) wrote.

    Raises UserError as `refuse_failed_share` does.
    """
    tokenizer = tokenizer_fingerprint(model_folder(rm)) if rm else None
    counts = score_counts(writer.parts(), ctx.config)
    writer.finish(counts, tokenizer=tokenizer, check=lambda whole: refuse_failed_share(ctx, writer, whole))


def refuse_failed_share(ctx: StageContext, writer: ShardWriter, counts: Mapping[str, int]) -> None:
    """UserError where more prompts did not fit, or more replies did not come, than a stated share. Tasks whose replies
    did not come have no part then: the next call asks for them again.
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
