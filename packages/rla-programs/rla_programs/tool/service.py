"""Shared by the episodes of a stage: one sandbox, for calls and for answers that are programs, and a verifier."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rla.envs.observation import Observation
from rla.store.records import Task
from rla_programs.coding.running import Runner
from rla_programs.execution import make_sandbox
from rla_programs.tool.answers import Verifier
from rla_programs.tool.decoration import shown_question
from rla_programs.tool.episode import ToolEpisode
from rla_programs.tool.formats import make_format
from rla_programs.tool.interpreter import PythonTool
from rla_programs.tool.params import ToolParams
from rla_programs.tool.questions import Question, question_of


class ToolService:
    """`rla.envs.protocols.Service`. Raises UserError if programs cannot be run on this machine."""

    def __init__(self, own: ToolParams) -> None:
        self._own = own
        self._sandbox = make_sandbox(own.execution)
        self._verifier = Verifier(
            published=own.answer == "published", runner=Runner(own.execution, sandbox=self._sandbox)
        )
        self.tool = PythonTool(
            own.execution,
            result_chars=own.result_chars,
            autoprint=own.autoprint,
            cutting=own.cut,
            sandbox=self._sandbox,
        )

    def make(self, task: Task) -> ToolEpisode:
        return self.episode(question_of(task))

    def episode(self, question: Question) -> ToolEpisode:
        own = self._own
        return ToolEpisode(
            question,
            shown=shown_question(question, published=own.prompt == "published", tool=own.has_tool),
            caller=self.tool if own.has_tool else None,
            checker=self._verifier,
            calls=make_format(own.format),
            most_calls=own.max_parallel_calls,
            malformed_ends=own.on_malformed == "end",
            whole=own.answer == "published",
        )

    def figures(self) -> dict[str, float]:
        """Figures of the calls; answers that are programs do not count as calls."""
        return self.tool.figures()

    async def close(self) -> None:
        await self._verifier.close()
        await self._sandbox.close()


class LoneToolEpisode:
    """An `AwaitedEnvironment` with its own sandbox, from the reset to the end."""

    def __init__(self, question: Question, own: ToolParams) -> None:
        self._question, self._own = question, own
        self._service: ToolService | None = None
        self._closing: asyncio.Task[None] | None = None

    async def reset(self) -> Observation:
        await self._end()
        self._service = ToolService(self._own)
        self._episode = self._service.episode(self._question)
        return await self._episode.reset()

    async def step(self, action: str) -> Observation:
        answer = await self._episode.step(action)
        if answer.done:
            await self._end()
        return answer

    def recall(self, actions: Sequence[str], answers: Sequence[str]) -> None:
        """`Recalls`."""
        self._episode.recall(actions, answers)

    async def stopped(self) -> Observation:
        """`Concludes`."""
        answer = await self._episode.stopped()
        await self._end()
        return answer

    def close(self) -> None:
        """The running event loop closes the sandbox; without one it is closed here."""
        if self._service is None:
            return
        try:
            self._closing = asyncio.get_running_loop().create_task(self._end())
        except RuntimeError:
            asyncio.run(self._end())

    async def _end(self) -> None:
        service, self._service = self._service, None
        if service is not None:
            await service.close()
