"""The pool of a split as `make-tasks` writes it: tasks that the environment makes or reads; with `--curate` those of
the training split that a start model can learn from (`rla.adaptation.curating`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rla.adaptation.curating import curated_pool
from rla.envs.protocols import Imports, need
from rla.envs.registry import environment
from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.seeds import derive
from rla.store.records import Task


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
    kept, counts = curated_pool(tasks, Path(folder), config=config, seed=ctx.config.seed)
    also = " ".join(f"{name}={share:g}" for name, share in asdict(config.curation).items())
    return MadePool(tasks=kept, inputs=(Path(folder),), also=f"curated {also}", curation=counts)


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
