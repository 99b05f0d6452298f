"""Tasks in Harbor's format as an environment: import, proof, and prompts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from pathlib import Path

from rla_programs.execution.local import LocalSandbox
from rla_programs.execution.shell import shell_boxes

from rla.config import Config
from rla.envs.authoring import root_task
from rla.envs.chat_prompts import judge_prompt, policy_prompt
from rla.envs.observation import AwaitedEnvironment, EnvironmentFailure
from rla.envs.protocols import JudgePrompt, PolicyPrompt
from rla.errors import UserError
from rla.processes import usable_cores
from rla.store.records import Task, content_id
from rla.text import one_line
from rla_harbor.episode import DONE, HarborService
from rla_harbor.folders import HarborTask, read_folder, task_folders
from rla_harbor.machines import SandboxMachine
from rla_harbor.params import HarborParams

RULES = (
    "You solve a task in the bash shell of a Linux machine. An action is one shell command, which may have several "
    "lines. The folder stays from one command to the next; variables do not, and processes end with their command. "
    f"When the task is solved, give the action {DONE}: then tests decide."
)

PROOFS: dict[tuple[str, HarborParams, float], str] = {}  # both splits of a folder are made of the same tasks


class Harbor:
    """Terminal tasks in the format of Harbor, solved in a shell."""

    name = "harbor"
    Params = HarborParams

    def check(self, config: Config) -> None:
        if config.policy.decoding != "free" or config.policy.reply == "index":
            raise UserError("env.name: harbor needs policy.decoding: free and policy.reply: tagged, or text")

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        if not config.tasks.path:
            raise UserError("env.name: harbor has no tasks of its own; set tasks.path, or call rla make-tasks --from")
        return self.import_tasks(config, split=split)[: config.tasks.count(split)]

    def import_tasks(self, config: Config, *, split: str, tell: Callable[[str], None] | None = None) -> list[Task]:
        """The tasks that can be played here. `tell` gets a line with the reason for each of the others."""
        own, elsewhere = config.env.own, config.tasks.held_out(split) and config.env.own.test_path
        top = Path(elsewhere or str(config.tasks.path)).resolve()
        if not top.is_dir():
            raise UserError(f"tasks.path: {top} is not a folder; name a folder of tasks in Harbor's format")
        readable, left_out = dict[str, HarborTask](), dict[Path, str]()
        for folder in task_folders(top):
            try:
                task = read_folder(folder)
            except ValueError as error:
                left_out[folder] = str(error)
                continue
            if (first := readable.setdefault(task.digest, task)) is not task:
                left_out[folder] = f"it is a copy of {os.path.relpath(first.folder, top)}"
        tasks = [readable[digest] for digest in sorted(readable)]
        proofs = asyncio.run(_proofs(tasks, own, config.env.reward_threshold))
        left_out |= {task.folder: why for task, why in zip(tasks, proofs, strict=True) if why}
        if tell and (elsewhere or not config.tasks.held_out(split)):  # once for both splits of a folder
            for folder, why in sorted(left_out.items()):
                name = folder.name if folder == top else folder.relative_to(top)
                tell(one_line(f"{name} is left out: {why}", 300))
        playable = [task for task, why in zip(tasks, proofs, strict=True) if not why]
        return [_row(task, split) for task in _in_split(playable, config, split)[: config.tasks.limit]]

    def make(self, task: Task, config: Config) -> AwaitedEnvironment:
        """An episode with a sandbox of its own; the episodes of a stage share one (`service`)."""
        return self.service(config).make(task)

    def service(self, config: Config) -> HarborService:
        return HarborService(config.env.own)

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        return policy_prompt(config, rules=RULES)

    def judge_prompt(self, config: Config) -> JudgePrompt:
        return judge_prompt(config, rules="an agent that solves a task in the shell of a Linux machine")


def _in_split(tasks: list[HarborTask], config: Config, split: str) -> list[HarborTask]:
    """All tasks if held-out ones have a folder of their own, else a share that depends on their contents alone."""
    own, tests = config.env.own, config.tasks.test_splits
    held_out = tasks if own.test_path else tasks[: ceil(own.held_out * len(tasks))]
    if config.tasks.held_out(split):
        return held_out[tests.index(split) :: len(tests)]
    return tasks if own.test_path else tasks[len(held_out) :]


def _row(task: HarborTask, split: str) -> Task:
    """Its id depends on the contents of the folder, and not on the place."""
    name, content = content_id(Harbor.name, task.digest), {"digest": task.digest, "folder": str(task.folder)}
    kind, scene = one_line(task.category, 60), one_line(task.folder.name, 60)
    row = root_task(env=Harbor.name, split=split, instruction=task.instruction, content=content, kind=kind, scene=scene)
    return replace(row, task_id=name, slot=name)


async def _proofs(tasks: list[HarborTask], own: HarborParams, threshold: float) -> list[str]:
    """For each task why it cannot be played; empty if it can."""
    sandbox = None if all(task.sandbox for task in tasks) else shell_boxes()
    places = asyncio.Semaphore(usable_cores())

    async def proof(task: HarborTask) -> str:
        if task.sandbox or sandbox is None or not own.prove:
            return task.why_not(own.backend)
        async with places:
            if (key := (task.digest, own, threshold)) not in PROOFS:
                PROOFS[key] = await _proof(task, own, sandbox, threshold)
            return PROOFS[key]

    return await asyncio.gather(*map(proof, tasks))


async def _proof(task: HarborTask, own: HarborParams, sandbox: LocalSandbox, threshold: float) -> str:
    """Its tests must fail if nothing is done, and pass after its own solution, if it brings one."""
    for solved in (False, True) if task.solved else (False,):
        machine = SandboxMachine(task, own, sandbox)
        try:
            await machine.start()
            ran = await machine.solve() if solved else None
            reward = await machine.verify()
        except EnvironmentFailure as error:
            return str(error)
        finally:
            await machine.stop()
        if reward is None:
            return "its tests leave no reward in the sandbox"
        if ran is None and reward >= threshold:
            return f"its tests give {reward:g} although nothing was done"
        if ran is not None and reward < threshold:
            ended = ran.ended or f"exit code {ran.code}"
            return f"its own solution gets {reward:g} in the sandbox ({ended}), so it needs an image or a network"
    return ""
