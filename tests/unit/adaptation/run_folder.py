"""A run of the stages that change tasks, in which an expert that errs stands in for the policy."""

from __future__ import annotations

from pathlib import Path

from rla.cli.app import run as call
from rla.cli.progress import make_progress
from rla.envs.alfworld.environment import Alfworld
from rla.envs.registry import load_config
from rla.pipeline import StageContext
from rla.seeds import derive
from rla.store.layout import artifact
from rla.store.reading import read_candidates, read_tasks
from rla.store.records import Task, Trajectory
from rla.store.shards import Origin, write_shard
from stages import STAGES
from stages.rollout import chosen_tasks
from tests.unit.builders import trajectory

PARAMS = """
seed: 3
env: {name: alfworld, max_steps: 12, omit_commands: [look, inventory, help, examine]}
tasks: {size: tiny, train_scenes: 4, test_scenes: 1, tasks_per_scene: 2}
rollout: {tasks_per_iteration: 6, rollouts_per_task: 8}
adaptation: {max_tasks: 4, max_depth: 2}
"""
ERRS = (0.8, 0.5, 0.1, 0.1, 0.9, 0.9)  # share of random actions: the policy learns, and then forgets


class Loop:
    """`turn(errs)` plays an iteration with that share of random actions, then calls the stages of adaptation."""

    def __init__(self, folder: Path, *, overrides: tuple[str, ...] = ()) -> None:
        self.run, self.params, self.overrides = folder / "run", folder / "params.yaml", overrides
        self.iteration = 0
        folder.mkdir(exist_ok=True)
        self.params.write_text(PARAMS)
        self.config, self.player = load_config(self.params, overrides), Alfworld()
        self.stage("make-tasks")

    def stage(self, name: str, *options: str) -> int:
        words = [name, "--run", str(self.run), "--params", str(self.params), "--iteration", str(max(1, self.iteration))]
        status = call([*words, *(word for text in self.overrides for word in ("--set", text)), *options])
        assert status == 0 or options
        return status

    def turn(self, errs: float) -> None:
        self.iteration += 1
        self.play(errs)
        self.stage("validate-tasks")
        self.stage("adapt-env")

    def tasks(self) -> list[Task]:
        """What `rollout` would play in this iteration."""
        spec = next(spec for spec in STAGES if spec.name == "rollout")
        ctx = StageContext(
            spec=spec,
            stages=STAGES,
            config=self.config,
            run=self.run,
            iteration=self.iteration,
            progress=make_progress(),
        )
        return chosen_tasks(ctx, read_tasks(ctx.path("pool")), read_candidates(ctx.path("candidates")))[0]

    def play(self, errs: float) -> None:
        rows = [
            self.episode(task, number, errs).row()
            for task in self.tasks()
            for number in range(self.config.rollout.rollouts_per_task)
        ]
        origin = Origin(config=str(errs), inputs={}, seed=self.iteration)
        write_shard(artifact(self.run, "trajectories", self.iteration), "trajectories", rows, origin)
        write_shard(artifact(self.run, "scores", self.iteration), "scores", [], origin)

    def episode(self, task: Task, number: int, errs: float) -> Trajectory:
        seed = derive(self.iteration, task.task_id, number)
        won = self.player.demonstrate(task, self.config, seed=seed, random_share=errs).won
        return trajectory(
            f"{self.iteration}-{task.task_id}-{number}",
            task_id=task.task_id,
            slot=task.slot,
            status=task.status,
            iteration=self.iteration,
            rollout=number,
            outcome=1 if won else -1,
            stop_reason="won" if won else "max_steps",
        )


def played_loop(folder: Path) -> Loop:
    """Six iterations in which tasks are accepted, rejected and returned."""
    overrides = ("adaptation.acceptance=interval", "rollout.pending=within")
    made = Loop(folder, overrides=overrides)
    for errs in ERRS:
        made.turn(errs)
    return made
