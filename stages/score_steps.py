"""`score-steps`: m judgements of every step by the reward model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rla.config import Config
from rla.envs.registry import setting
from rla.models.fingerprint import tokenizer_fingerprint
from rla.records import StepScore
from rla.shards import ShardWriter, read_manifest, read_part, read_rows
from stages.common import check_failures, model_folder, origin, run_async
from stages.context import StageContext
from stages.fallback import policy_of

COLUMNS = ("trajectory_id", "task_id", "instruction", "steps", "final_observation")


def run(ctx: StageContext) -> dict[str, Any]:
    """Judges what an interrupted call has left; with `judge.enabled: false` the shard is empty."""
    trajectories = ctx.path("trajectories")
    judged = ctx.config.judge.enabled
    rm = policy_of(ctx, "rm", "rm") if judged else ctx.path("rm")
    folder = ctx.path("out")
    writer = ShardWriter(
        folder, "scores", origin(ctx, [trajectories, *([rm] if judged else [])]), overwrite=ctx.overwrite
    )
    if not writer.complete:
        if judged:
            judge(ctx, writer, trajectories, rm)
        else:
            writer.write(0, [])
        counts = tally(folder)
        limit = ctx.config.rollout.max_failed_share
        check_failures(folder, counts["skipped"], counts["steps"], limit, what="steps, whose prompt did not fit,")
        writer.finish(counts, tokenizer=tokenizer_fingerprint(model_folder(rm)) if judged else None)
    return {"scores": str(folder), **read_manifest(folder, "scores")["counts"]}


def judge(ctx: StageContext, writer: ShardWriter, trajectories: Path, rm: Path) -> None:
    from rla.judging import Judging, judge_groups, reply_trie
    from rla.llm.chat import ChatFormat
    from rla.llm.factory import make_generator

    rows = [row for row in read_rows(trajectories, "trajectories", COLUMNS) if row["steps"]]
    by_task: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_task.setdefault(row["task_id"], []).append(row)
    groups = list(enumerate(by_task.values()))
    left = [(index, group) for index, group in groups if index not in writer.done]
    ctx.progress.start("score-steps", total=sum(len(row["steps"]) for _, group in left for row in group))

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
            [group for _, group in left],
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


def tally(folder: Path) -> dict[str, int]:
    """Steps, judgements, those whose prompt did not fit, judgements, unparsable and truncated ones."""
    counts = dict.fromkeys(("steps", "skipped", "judgements", "unparsable", "truncated"), 0)
    for part in sorted(folder.glob("part-*.parquet")):
        for row in read_part(part, ["judgements"]).to_pylist():
            counts["steps"] += 1
            counts["skipped"] += not row["judgements"]
            counts["judgements"] += len(row["judgements"])
            counts["unparsable"] += sum(vote["score"] is None for vote in row["judgements"])
            counts["truncated"] += sum(vote["truncated"] for vote in row["judgements"])
    return counts
