"""`score-steps`: m judgements of every step by the reward model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.envs.registry import setting
from rla.models.fingerprint import tokenizer_fingerprint
from rla.records import StepScore
from rla.shards import ShardWriter, part_rows, read_footer, read_manifest, read_nested, verify_parts
from stages.common import check_failures, model_folder, origin, run_async
from stages.context import StageContext
from stages.dividing import counts_of, divided, slice_of
from stages.fallback import policy_of

COLUMNS = ("task_id", "trajectory_id", "instruction", "steps", "final_observation")


def run(ctx: StageContext) -> dict[str, Any]:
    """Judges what an interrupted call has left; with `judge.enabled: false` the shard is empty."""
    trajectories = ctx.path("trajectories")
    judged = ctx.config.judge.enabled
    rm = policy_of(ctx, "rm", "rm") if judged else ctx.path("rm")
    folder = ctx.path("out")
    made_from = origin(ctx, [trajectories, *([rm] if judged else [])])
    writer = ShardWriter(folder, "scores", made_from, overwrite=ctx.overwrite, part=slice_of(ctx))
    if not (writer.complete or divided(ctx, writer)):
        if judged:
            judge(ctx, writer, trajectories, rm)
        elif writer.slice.takes(0):
            writer.write(0, [])

        def check(counts: Mapping[str, int]) -> None:
            limit = ctx.config.rollout.max_failed_share
            check_failures(folder, counts["skipped"], counts["steps"], limit, what="steps, whose prompt did not fit,")

        tokenizer = tokenizer_fingerprint(model_folder(rm)) if judged else None
        writer.finish(tally(writer.parts()), tokenizer=tokenizer, check=check)
    return {"scores": str(folder), **counts_of(writer)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedTask:
    """The trajectories of one task: where they lie, how many steps they have. Rows are read when it is their turn."""

    task_id: str
    parts: tuple[Path, ...]
    steps: int

    def rows(self) -> list[dict[str, Any]]:
        """Those that have steps, in order."""
        return [row for part in self.parts for row in part_rows(part, COLUMNS, keys={self.task_id}) if row["steps"]]


def played_tasks(trajectories: Path) -> list[PlayedTask]:
    """The tasks of a trajectory shard that have steps to judge, in order. Damage of the shard is found here."""
    manifest = read_manifest(trajectories, "trajectories")
    verify_parts(trajectories, manifest)
    parts: dict[str, list[Path]] = {}
    steps: dict[str, int] = {}
    for part in manifest["parts"]:
        path = trajectories / part["name"]
        read_footer(path)
        for row in read_nested(path, ["task_id", "steps.list.element.valid"]):
            if row["steps"]:
                name = row["task_id"]
                steps[name] = steps.get(name, 0) + len(row["steps"])
                if path not in parts.setdefault(name, []):
                    parts[name].append(path)
    return [PlayedTask(task_id=name, parts=tuple(found), steps=steps[name]) for name, found in parts.items()]


def judge(ctx: StageContext, writer: ShardWriter, trajectories: Path, rm: Path) -> None:
    from rla.judging import Judging, judge_groups, reply_trie
    from rla.llm.chat import ChatFormat
    from rla.llm.factory import make_generator

    groups = enumerate(played_tasks(trajectories))
    left = [(index, task) for index, task in groups if index not in writer.done and writer.slice.takes(index)]
    ctx.progress.start("score-steps", total=sum(task.steps for _, task in left))

    def finished(position: int, scores: list[StepScore]) -> None:
        writer.write(left[position][0], [score.row() for score in scores])
        ctx.progress.advance(len(scores))

    if not left:
        return
    environment = setting(ctx.config.env.name)
    generator, tokenizer = make_generator(ctx.config.generator, model=model_folder(rm), seed=ctx.config.seed)
    chat, prompt = ChatFormat(tokenizer), environment.judge_prompt(ctx.config)
    shared = Judging(
        generator=generator,
        chat=chat,
        prompt=prompt,
        config=ctx.config.judge,
        seed=ctx.config.seed,
        replies=reply_trie(chat, prompt, ctx.config.judge),
    )
    run_async(
        judge_groups(
            (task.rows() for _, task in left),
            shared,
            concurrency=trajectories_at_once(ctx.config),
            finished=finished,
        )
    )
    generator.close()


def trajectories_at_once(config: Config) -> int:
    """With an engine of fixed slots: half of them hold prompts, the others are for judgements that part from the first.

    Without that room a prompt's slot would be taken from it before its next step.
    """
    if config.generator.backend != "transformers":
        return config.rollout.concurrency
    return max(1, min(config.rollout.concurrency, config.generator.max_sequences // min(config.judge.votes, 2)))


def tally(parts: Sequence[Path]) -> dict[str, int]:
    """Steps, those whose prompt did not fit, judgements, unparsable and truncated ones."""
    counts = dict.fromkeys(("steps", "skipped", "judgements", "unparsable", "truncated"), 0)
    for part in parts:
        for row in read_nested(part, ["judgements.list.element.score", "judgements.list.element.truncated"]):
            counts["steps"] += 1
            counts["skipped"] += not row["judgements"]
            counts["judgements"] += len(row["judgements"])
            counts["unparsable"] += sum(vote["score"] is None for vote in row["judgements"])
            counts["truncated"] += sum(vote["truncated"] for vote in row["judgements"])
    return counts
