"""The pool of a split as `make-tasks` writes it: tasks that the environment makes or reads; with `--curate` those of
the training split that a start model can learn from, by how often it solved them:

    pass rate r = won / played, over the episodes that did not fail
    r = 0 or r = 1      dropped: every rollout has the same outcome, so no advantage is left
    easy r >= 0.75      medium 0.25 < r < 0.75      hard r <= 0.25      kept, and counted

Source: the model-aware data set of "Demystifying RL in Agentic Reasoning" (2025), section 3.3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rla.config.sections import TasksConfig
from rla.envs.protocols import Imports, need
from rla.envs.registry import environment
from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.seeds import derive
from rla.store.reading import stream_rows
from rla.store.records import StopReason, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePool:
    """The tasks of a split. `inputs`, `also`: what it was made from beside the parameters (`rla.pipeline.origins`)."""

    tasks: Sequence[Task]
    inputs: tuple[Path, ...] = ()
    also: str = ""
    curation: Mapping[str, Any] = field(default_factory=dict)  # counts, where it was curated

    @property
    def counts(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return {"scenes": len({task.scene for task in self.tasks}), **self.curation}


def made_pool(ctx: StageContext, split: str) -> MadePool:
    """Raises UserError where tasks cannot be made, or the trajectories of `--curate` are of others."""
    tasks, config, folder = made_tasks(ctx, split), ctx.config.tasks, ctx.options.get("curate")
    if config.held_out(split):
        return MadePool(tasks=tasks, also=" ".join(config.test_splits))  # DVC follows the main pool, for all
    if folder is None:
        return MadePool(tasks=tasks)
    kept, counts = curated_pool(tasks, Path(folder))
    return MadePool(tasks=kept, inputs=(Path(folder),), also="curated", curation=counts)


def made_tasks(ctx: StageContext, split: str) -> list[Task]:
    """The tasks of a split, built in or imported. Of built-in ones a further held-out split has a seed of its own.

    Raises UserError for tasks of another environment, which no stage would read.
    """
    chosen, further = environment(ctx.config.env.name), split in ctx.config.tasks.test_splits[1:]
    if ctx.config.tasks.source == "builtin":
        seed = derive(ctx.config.seed, "split", split) if further else ctx.config.seed
        tasks = chosen.tasks(ctx.config, split=split, seed=seed)
    else:
        tasks = need(chosen, Imports, "make-tasks").import_tasks(ctx.config, split=split, tell=ctx.progress.note)
    if strange := next((task.env for task in tasks if task.env != ctx.config.env.name), None):
        raise UserError(
            f"env.name: {ctx.config.env.name} makes tasks of the environment {strange!r}; let it give each task "
            "env=self.name, and let name be that of its entry point"
        )
    return tasks


def refuse_curated_evaluation(ctx: StageContext, splits: Sequence[str]) -> None:
    """UserError where `--curate` is given and no split that trains is made: no model chooses held-out tasks."""
    if ctx.options.get("curate") and all(map(ctx.config.tasks.held_out, splits)):
        raise UserError(
            f"--curate chooses tasks for training, and {', '.join(splits)} is held out; name no such --split"
        )


BUCKETS = ("easy", "medium", "hard")
EASY, HARD = 0.75, 0.25


def bucket_of(rate: float) -> str | None:
    """None for a rate of 0 or 1."""
    if not 0 < rate < 1:
        return None
    return "easy" if rate >= EASY else "hard" if rate <= HARD else "medium"


def pass_rates(trajectories: Path) -> dict[str, float]:
    """Of each task of a trajectories shard with an episode that did not fail: the share of those that was won."""
    won, played = Counter[str](), Counter[str]()
    for row in stream_rows(trajectories, "trajectories", ["task_id", "outcome", "stop_reason"]):
        if row["stop_reason"] != StopReason.ENV_ERROR.value:
            played[row["task_id"]] += 1
            won[row["task_id"]] += row["outcome"] > 0
    return {task_id: won[task_id] / count for task_id, count in sorted(played.items())}


def curated_pool(tasks: Sequence[Task], trajectories: Path) -> tuple[list[Task], dict[str, int]]:
    """The tasks that are kept, and the counts. Raises UserError where the shard is of other tasks, or none is left."""
    rates, known = pass_rates(trajectories), {task.task_id for task in tasks}
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
        **{name: list(buckets.values()).count(name) for name in BUCKETS},
    }
    if not buckets:
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise UserError(f"--curate {trajectories}: no task is left ({said}); play more rollouts of each task")
    return [task for task in tasks if task.task_id in buckets], counts


def never_held_out(made: Mapping[str, Sequence[Task]], config: TasksConfig) -> list[str]:
    """The kinds of the training split that are missing in the main held-out one, by name: a page with three scenes may
    have none that is held out. Empty where not both were
    made, and where other kinds are held out on purpose. Data sets have splits of their own: they are not asked.
    """
    train, test = made.get(config.train_split), made.get(config.test_splits[0])
    if not train or test is None or config.test_kinds or config.source != "builtin":
        return []
    return sorted({task.kind for task in train} - {task.kind for task in test})


def told_missing(kinds: Sequence[str], config: TasksConfig) -> str:
    """What is missing, why that may be, and what can be done."""
    main, names = config.test_splits[0], ", ".join(kinds)
    return (
        f"{names}: no task is held out in split {main!r}, so no evaluation there shows what is learnt of this kind. It "
        f"has too few different scenes, or tasks.test_scenes ({config.test_scenes}) is too small; leave it out of "
        "tasks.kinds, or ask for more"
    )
