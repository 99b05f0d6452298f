"""`adapt-env`: for tasks whose accuracy left the band, propose harder or easier ones, each proven solvable."""

from __future__ import annotations

from typing import Any

from rla.adaptation.choose import choose
from rla.adaptation.critic import critique
from rla.atomic import write_json
from rla.envs.registry import setting
from rla.envs.setting import RejectedEdit, Setting
from rla.layout import artifact
from rla.records import Direction, Task, content_id
from rla.seeds import derive
from rla.shards import read_rows, write_shard
from stages.common import origin, read_tasks
from stages.context import StageContext
from stages.validate_tasks import accuracies


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes all candidates with the reason of those that are not valid; one valid candidate per slot at the most."""
    inputs = [ctx.path(name) for name in ("pool", "trajectories", "scores")]
    config = ctx.config.adaptation
    rows: list[dict[str, Any]] = []
    chosen: list[tuple[Task, Direction, float]] = []
    if config.enabled:
        pool = read_tasks(inputs[0])
        played = accuracies(
            read_rows(inputs[1], "trajectories", ["task_id", "status", "outcome", "stop_reason"])
        )
        chosen = choose(
            pool,
            {task: accuracy for task, (accuracy, _) in played.items()},
            config=config,
            resting=resting_slots(ctx),
        )
        rows = candidates(ctx, pool, chosen)
    counts = {
        "chosen": len(chosen),
        "proposed": len(rows),
        "valid": sum(row["valid"] for row in rows),
        "harder": sum(direction is Direction.HARDER for _, direction, _ in chosen),
        "easier": sum(direction is Direction.EASIER for _, direction, _ in chosen),
    }
    write_shard(
        ctx.path("out"), "candidates", rows, origin(ctx, inputs), counts=counts, overwrite=ctx.overwrite
    )
    write_json(ctx.path("out") / "metrics.json", counts)
    return {"candidates": str(ctx.path("out")), **counts}


def resting_slots(ctx: StageContext) -> set[str]:
    """Slots with a verdict in this iteration or in the `cooldown - 1` before it."""
    slots: set[str] = set()
    for iteration in range(max(1, ctx.iteration - ctx.config.adaptation.cooldown + 1), ctx.iteration + 1):
        folder = artifact(ctx.run, "verdicts", iteration)
        if folder.exists():
            slots.update(row["slot"] for row in read_rows(folder, "verdicts", ["slot"]))
    return slots


def candidates(
    ctx: StageContext, pool: list[Task], chosen: list[tuple[Task, Direction, float]]
) -> list[dict[str, Any]]:
    """Proposals for each chosen task in turn; the first that is proven is kept as the slot's pending task."""
    environment = setting(ctx.config.env.name)
    roots = {task.task_id: task for task in read_tasks(artifact(ctx.run, "train_tasks", 0))}
    taken = {task.task_id for task in pool} | set(roots)
    texts = failed_texts(ctx, {task.task_id for task, _, _ in chosen})
    rows = []
    for task, direction, accuracy in chosen:
        criticism = critique(texts.get(task.task_id, []))
        common = {"direction": direction.value, "parent_accuracy": accuracy, "critique": criticism}
        edits = environment.propose(
            task,
            direction=direction.value,
            critique=criticism,
            seed=derive(ctx.config.seed, "edits", task.task_id, ctx.iteration),
            count=ctx.config.adaptation.proposals_per_task,
        )
        for edit in edits:
            row = prove(environment, task, edit, root=roots.get(task.slot, task), taken=taken, ctx=ctx)
            rows.append({**row, **common})
            if row["valid"]:
                taken.add(row["task_id"])
                break
    return rows


def prove(
    environment: Setting, task: Task, edit: str, *, root: Task, taken: set[str], ctx: StageContext
) -> dict[str, Any]:
    """One candidate row: the verified child, or the parent's fields with the reason of the refusal."""
    try:
        child = environment.apply(task, edit, root=root, taken=taken, created=ctx.iteration)
    except RejectedEdit as refused:
        identity = content_id(task.task_id, edit, str(ctx.iteration))
        row = {**task.row(), "task_id": identity, "parent_id": task.task_id, "edit": edit}
        return {**row, "created": ctx.iteration, "valid": False, "reason": str(refused)}
    return {**child.row(), "valid": True, "reason": ""}


def failed_texts(ctx: StageContext, tasks: set[str]) -> dict[str, list[str]]:
    """task id -> what the judge wrote on steps that it scored -1, over the task's failed trajectories."""
    columns = ["trajectory_id", "task_id", "outcome"]
    failed = {
        row["trajectory_id"]
        for row in read_rows(ctx.path("trajectories"), "trajectories", columns)
        if row["outcome"] == -1 and row["task_id"] in tasks
    }
    texts: dict[str, list[str]] = {}
    for row in read_rows(ctx.path("scores"), "scores", ["trajectory_id", "task_id", "judgements"]):
        if row["trajectory_id"] in failed:
            said = [vote["text"] for vote in row["judgements"] if vote["score"] == -1]
            texts.setdefault(row["task_id"], []).extend(said)
    return texts
