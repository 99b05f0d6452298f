"""`adapt-env`: for tasks whose accuracy left the band, propose harder or easier ones, each proven solvable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rla.adaptation.accept import TaskVerdict
from rla.adaptation.choose import Choice, choose, resting_slots
from rla.adaptation.critic import critique, rejections
from rla.adaptation.propose import Candidate, RulesProposer, prove
from rla.atomic import write_json
from rla.envs.registry import setting
from rla.layout import artifact
from rla.records import Direction
from rla.seeds import derive
from rla.shards import read_rows, write_shard
from stages.common import origin, read_tasks
from stages.context import StageContext
from stages.validate_tasks import accuracies

PROPOSERS = {"rules": RulesProposer}


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes all candidates with the reason of those that are not valid; one valid candidate per slot at the most."""
    inputs = [ctx.path(name) for name, _ in ctx.spec.reads] + earlier_verdicts(ctx)
    choices, candidates = propose(ctx) if ctx.config.adaptation.enabled else ([], [])
    counts = {
        "chosen": len(choices),
        "proposed": len(candidates),
        "valid": sum(candidate.valid for candidate in candidates),
        "harder": sum(choice.direction is Direction.HARDER for choice in choices),
        "easier": sum(choice.direction is Direction.EASIER for choice in choices),
    }
    rows = [candidate.row() for candidate in candidates]
    write_shard(ctx.path("out"), "candidates", rows, origin(ctx, inputs), counts=counts, overwrite=ctx.overwrite)
    write_json(ctx.path("out") / "metrics.json", counts)
    return {"candidates": str(ctx.path("out")), **counts}


def propose(ctx: StageContext) -> tuple[list[Choice], list[Candidate]]:
    """The tasks to change, and for each in turn its candidates; the first that is proven becomes pending."""
    config = ctx.config.adaptation
    pool = read_tasks(ctx.path("pool"))
    played = read_rows(ctx.path("trajectories"), "trajectories", ["trajectory_id", "task_id", "outcome", "stop_reason"])
    choices = choose(
        pool,
        {task: accuracy for task, (accuracy, _) in accuracies(played).items()},
        config=config,
        resting=resting_slots(recent_verdicts(ctx), iteration=ctx.iteration, cooldown=config.cooldown),
        seed=derive(ctx.config.seed, "choose", ctx.iteration),
    )
    asked = {choice.task.task_id for choice in choices}
    failed = {row["trajectory_id"] for row in played if row["outcome"] == -1 and row["task_id"] in asked}
    texts = rejections(read_rows(ctx.path("scores"), "scores"), failed) if failed else {}
    editor = setting(ctx.config.env.name)
    proposer = PROPOSERS[config.proposer](editor)
    roots = {task.task_id: task for task in read_tasks(ctx.path("roots"))}
    taken = {task.task_id for task in pool} | set(roots)
    candidates: list[Candidate] = []
    for choice in choices:
        task = choice.task
        said = critique(texts.get(task.task_id, []))
        edits = proposer.propose(
            task=task,
            direction=choice.direction,
            accuracy=choice.accuracy,
            critique=said,
            count=config.proposals_per_task,
            seed=derive(ctx.config.seed, "edits", task.task_id, ctx.iteration),
        )
        root = roots.get(task.slot, task)
        proven = prove(edits, choice, editor=editor, root=root, taken=taken, critique=said, created=ctx.iteration)
        taken |= {candidate.task.task_id for candidate in proven if candidate.valid}
        candidates += proven
    return choices, candidates


def earlier_verdicts(ctx: StageContext) -> list[Path]:
    """The verdicts of the iterations before this one that the cool-down looks back on."""
    first = max(1, ctx.iteration - ctx.config.adaptation.cooldown + 1)
    folders = [artifact(ctx.run, "verdicts", number) for number in range(first, ctx.iteration)]
    return [folder for folder in folders if folder.exists()]


def recent_verdicts(ctx: StageContext) -> list[TaskVerdict]:
    folders = [*earlier_verdicts(ctx), ctx.path("verdicts")]
    return [TaskVerdict(**row) for folder in folders for row in read_rows(folder, "verdicts")]
