"""Episodes: the policy gives shell commands, and the task's tests decide when it says `done` or may not go on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from rla_programs.execution.local import LocalSandbox
from rla_programs.execution.shell import shell_boxes
from rla_programs.tool.results import cut_text, harmless

from rla.envs.observation import EnvironmentFailure, Observation
from rla.store.records import Task
from rla_harbor.folders import HarborTask, read_folder
from rla_harbor.machines import BackendMachine, SandboxMachine, check_backend
from rla_harbor.params import HarborParams

DONE = "done"


class HarborEpisode:
    """An `AwaitedEnvironment` that `Concludes`: at the step limit the tests decide, as after `done`."""

    def __init__(self, row: Task, own: HarborParams, service: HarborService) -> None:
        self._row, self._own, self._service = row, own, service
        self._machine: SandboxMachine | BackendMachine | None = None

    async def reset(self) -> Observation:
        """Raises EnvironmentFailure with the reason if the task cannot be played here; it then has no outcome."""
        await self._stop()
        self._task = self._service.task_of(self._row)
        self._left = self._task.agent_s or self._own.agent_s
        self._machine = self._service.machine(self._task)
        await self._machine.start()
        told = f"The shell is in {self._machine.folder}. The action `{DONE}` ends the task."
        return Observation(text=f"{self._task.instruction}\n\n{told}")

    async def step(self, action: str) -> Observation:
        if action.strip() == DONE:
            return await self.stopped()
        started = time.monotonic()
        ran = await self._running().run(action, min(self._own.command_s, self._left))
        self._left -= time.monotonic() - started
        ended = ran.ended or (f"[exit code {ran.code}]" if ran.code else "")
        output = cut_text(harmless(ran.text).rstrip("\n"), self._own.output_chars)
        text = "\n".join(part for part in (output, ended) if part) or "[no output]"
        return Observation(text=text) if self._left > 0 else await self._concluded(f"{text}\n[the time is over]\n")

    async def stopped(self) -> Observation:
        return await self._concluded("")

    def close(self) -> None:
        self._service.end(self._stop())

    def _running(self) -> SandboxMachine | BackendMachine:
        if self._machine is None:
            raise EnvironmentFailure("the episode is over: call reset")
        return self._machine

    async def _concluded(self, text: str) -> Observation:
        """If the tests leave no reward, the policy has lost a task that was proven here; others have no outcome."""
        reward = await self._running().verify()
        await self._stop()
        if reward is None and (self._task.sandbox or not self._own.prove):
            raise EnvironmentFailure("the tests of the task left no reward, so the episode has no outcome")
        told = "The tests left no reward." if reward is None else f"The tests give the reward {reward:g}."
        return Observation(text=f"{text}{told}", done=True, reward=reward or 0.0)

    async def _stop(self) -> None:
        machine, self._machine = self._machine, None
        if machine is not None:
            await machine.stop()


class HarborService:
    """`rla.envs.protocols.Service`: the sandbox, and machines that are being removed."""

    def __init__(self, own: HarborParams) -> None:
        """Raises UserError if the backend cannot work here."""
        self._own = own
        self._sandbox: LocalSandbox | None = None  # for the first task that needs it
        if own.backend:
            check_backend(own.backend)
        self._endings: set[asyncio.Task[None]] = set()
        self._known: dict[str, HarborTask] = {}

    def make(self, task: Task) -> HarborEpisode:
        return HarborEpisode(task, self._own, self)

    def task_of(self, row: Task) -> HarborTask:
        """The folder of a task, which has to be as it was. Raises EnvironmentFailure."""
        if row.payload not in self._known:
            content = json.loads(row.payload)
            folder = Path(content["folder"])
            try:
                found = read_folder(folder)
            except ValueError as error:
                raise EnvironmentFailure(f"{folder} is not a task any more: {error}") from None
            if found.digest != content["digest"]:
                raise EnvironmentFailure(f"{folder} has changed since the pool was made; run make-tasks again")
            self._known[row.payload] = found
        return self._known[row.payload]

    def machine(self, task: HarborTask) -> SandboxMachine | BackendMachine:
        """Raises EnvironmentFailure if the task cannot be played here, and UserError if there is no sandbox for it."""
        if why := task.why_not(self._own.backend):
            raise EnvironmentFailure(f"{task.folder.name} cannot be played here: {why}")
        if task.sandbox:
            return BackendMachine(task, self._own.backend)
        self._sandbox = self._sandbox or shell_boxes()
        return SandboxMachine(task, self._own, self._sandbox)

    def end(self, stop: Coroutine[Any, Any, None]) -> None:
        """Remove a machine, in the background if an event loop runs."""
        try:
            ending = asyncio.get_running_loop().create_task(stop)
        except RuntimeError:
            return asyncio.run(stop)
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    async def close(self) -> None:
        await asyncio.gather(*self._endings, return_exceptions=True)
        if self._sandbox is not None:
            await self._sandbox.close()
