"""The pool of a split as `make-tasks` writes it: tasks that the environment makes or reads. No two splits share a task.

With `--curate` the training pool keeps the tasks that a start model can learn from, by how often it solved them:

    pass rate r = won / played, over the episodes that did not fail
    r = 0 or r = 1      dropped: every rollout has the same outcome, so no advantage is left
    easy r >= 0.75      medium 0.25 < r < 0.75      hard r <= 0.25      kept, and counted

Source: the model-aware data set of "Demystifying RL in Agentic Reasoning" (2025), section 3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from rla.adaptation.acceptance import measured_accuracies
from rla.config.sections import TasksConfig
from rla.envs.protocols import Adapts, Imports, need
from rla.envs.registry import environment
from rla.errors import UserError
from rla.pipeline import StageContext
from rla.seeds import derive
from rla.store.layout import places_of
from rla.store.reading import read_tasks, stream_rows
from rla.store.record import is_complete
from rla.store.records import Task

EASY, HARD = 0.75, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePool:
    """The tasks of a split. `inputs`, `also`: further parts of its origin (`rla.pipeline.origins`)."""

    tasks: Sequence[Task]
    inputs: tuple[Path, ...] = ()
    also: str = ""
    curation: Mapping[str, Any] = field(default_factory=dict)  # counts of a curated pool

    @property
    def counts(self) -> dict[str, Any]:
        """Counts for its manifest."""
        return {"scenes": len({task.scene for task in self.tasks}), **self.curation}


def made_pool(ctx: StageContext, split: str) -> MadePool:
    """The tasks of a split, built in or imported. Each further held-out split of built-in tasks has its own seed.

    Raises UserError for tasks of another environment, because no stage would read them, and if the trajectories of
    `--curate` are of other tasks.
    """
    chosen, config, folder = environment(ctx.config.env.name), ctx.config.tasks, ctx.options.get("curate")
    if config.source == "builtin":
        further = split in config.test_splits[1:]
        seed = derive(ctx.config.seed, "split", split) if further else ctx.config.seed
        tasks = chosen.tasks(ctx.config, split=split, seed=seed)
    else:
        tasks = need(chosen, Imports, "make-tasks").import_tasks(ctx.config, split=split, tell=ctx.progress.note)
    if strange := next((task.env for task in tasks if task.env != ctx.config.env.name), None):
        raise UserError(
            f"env.name: {ctx.config.env.name} makes tasks of the environment {strange!r}; let it give each task "
            "env=self.name, and let name be that of its entry point"
        )
    if config.held_out(split):
        return MadePool(tasks=tasks, also=" ".join(config.test_splits))  # DVC follows the main pool, for all
    if folder is None:
        return MadePool(tasks=tasks)
    kept, counts = curated_pool(tasks, Path(folder))
    return MadePool(tasks=kept, inputs=(Path(folder),), also="curated", curation=counts)


def refuse_curated_evaluation(ctx: StageContext, splits: Sequence[str]) -> None:
    """Raises UserError for `--curate` without a training split: no model chooses held-out tasks."""
    if ctx.options.get("curate") and all(map(ctx.config.tasks.held_out, splits)):
        raise UserError(
            f"--curate chooses tasks for training, and {', '.join(splits)} is held out; name no such --split"
        )


def refuse_shared(ctx: StageContext, made: Mapping[str, Sequence[Task]], *, places: Mapping[str, Path]) -> None:
    """Raises UserError if two splits have a task in common.

    `made`: the tasks of each split that this call makes. `places`: the folder of each split's pool. Pools of earlier
    calls count too, and so does the run's newest pool, which has the changed tasks. Tasks of a data set are also
    compared by content: two rows may differ in nothing but an id.
    """
    train, name = ctx.config.tasks.train_split, ctx.config.env.name
    chosen = environment(name)

    def marks_of(task: Task) -> set[str]:
        imported = ctx.config.tasks.source == "files" and task.env == name
        return {task.task_id, *((chosen.likeness(task),) if imported and isinstance(chosen, Adapts) else ())}

    pools = {split: [*made.get(split, ())] for split in places}
    for split in places.keys() - made.keys():
        adapted = sorted(places_of(ctx.run, "pool"), key=lambda path: int(path.parent.name))[-1:]
        for folder in [places[split], *(adapted if split == train else ())]:
            pools[split] += read_tasks(folder) if is_complete(folder) else ()
    marks = {split: [marks_of(task) for task in tasks] for split, tasks in pools.items()}
    for one, other in combinations(pools, 2):
        known = set().union(*marks[one])
        if shared := sum(not known.isdisjoint(own) for own in marks[other]):
            keys = "tasks.train_split and tasks.test_splits" if train in (one, other) else "tasks.test_splits"
            raise UserError(
                f"{keys}: {one} and {other} share {shared} of {len(pools[other])} tasks; name splits whose "
                "data differ, or files (tasks.path, env.own.test_path)"
            )


def bucket_of(rate: float) -> str | None:
    """None for a rate of 0 or 1."""
    if not 0 < rate < 1:
        return None
    return "easy" if rate >= EASY else "hard" if rate <= HARD else "medium"


def curated_pool(tasks: Sequence[Task], trajectories: Path) -> tuple[list[Task], dict[str, int]]:
    """(tasks that are kept, counts). Raises UserError if the shard is of other tasks, or if no task is left."""
    rows = stream_rows(trajectories, "trajectories", ["task_id", "outcome", "stop_reason"])
    rates = {task_id: rate for task_id, (rate, _) in measured_accuracies(rows).items()}
    known = {task.task_id for task in tasks}
    if others := rates.keys() - known:
        raise UserError(
            f"--curate {trajectories}: {len(others)} of its {len(rates)} tasks are not among the {len(tasks)} that "
            "these parameters make; give the --from, --env and params of the pool that its episodes were played on"
        )
    buckets = {task_id: bucket for task_id, rate in rates.items() if (bucket := bucket_of(rate))}
    counts = {
        "unmeasured": len(known) - len(rates),
        "measured": len(rates),
        "never_won": sum(rate <= 0 for rate in rates.values()),
        "always_won": sum(rate >= 1 for rate in rates.values()),
        **{name: list(buckets.values()).count(name) for name in ("easy", "medium", "hard")},
    }
    if not buckets:
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise UserError(f"--curate {trajectories}: no task is left ({said}); play more rollouts of each task")
    return [task for task in tasks if task.task_id in buckets], counts


def never_held_out(made: Mapping[str, Sequence[Task]], config: TasksConfig) -> list[str]:
    """The kinds of the training split that the main held-out split lacks, by name: a page with three scenes may have
    none left to hold out. Empty unless both splits were made, for data sets, and if `tasks.test_kinds` asks for other
    kinds.
    """
    train, test = made.get(config.train_split), made.get(config.test_splits[0])
    if not train or test is None or config.test_kinds or config.source != "builtin":
        return []
    return sorted({task.kind for task in train} - {task.kind for task in test})


def told_missing(kinds: Sequence[str], config: TasksConfig) -> str:
    """A note on the missing kinds, with the reason and the remedy."""
    main, names = config.test_splits[0], ", ".join(kinds)
    return (
        f"{names}: no task is held out in split {main!r}, so no evaluation there shows what is learnt of this kind. It "
        f"has too few different scenes, or tasks.test_scenes ({config.test_scenes}) is too small; leave it out of "
        "tasks.kinds, or ask for more"
    )
