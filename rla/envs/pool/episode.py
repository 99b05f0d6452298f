"""An environment whose steps happen in a worker; one that dies or hangs costs time and changes nothing.

Environments are deterministic given the task. So the episode of a lost worker goes on in another one: its actions are
played again, and every answer must be the one that was given before. A step that loses two workers ends the episode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rla.envs.observation import EnvironmentFailure, Observation
from rla.envs.pool.remote import Lost, Worker
from rla.envs.pool.wire import Message, to_observation
from rla.errors import UserError
from rla.store.records import Task

if TYPE_CHECKING:
    from rla.envs.pool.pool import EnvironmentPool


class PooledEnvironment:
    """`AwaitedEnvironment` over a pool. Raises EnvironmentFailure for what the environment answers badly or not at all,
    UserError where it cannot be made on this machine.
    """

    def __init__(self, pool: EnvironmentPool, task: Task) -> None:
        self._pool, self._task = pool, task
        self.worker: Worker | None = None
        self._placed = False
        self._history: list[tuple[Message, Observation]] = []

    async def reset(self) -> Observation:
        """The first observation; waits for a worker where all are taken."""
        if not self._placed:
            self.worker = await self._pool.take()
            self._placed = True
        self._history = []
        return await self._answer({"reset": self._task.row()})

    async def step(self, action: str) -> Observation:
        """The answer to an action."""
        return await self._answer({"step": action})

    def close(self) -> None:
        """Let the next episode have the worker, or end it where it still owes an answer."""
        if self._placed:
            self._placed = False
            self._pool.give(self.worker)
            self.worker = None

    async def _answer(self, message: Message) -> Observation:
        try:
            seen = await self._ask(message)
        except Lost:
            try:
                seen = await self._again(message)
            except Lost as second:
                what = f"action {message['step']!r}" if "step" in message else "the reset"
                raise EnvironmentFailure(f"the environment {second} twice at {what}") from None
        self._history.append((message, seen))
        return seen

    async def _again(self, message: Message) -> Observation:
        """Play the episode so far in a new worker (one that rests might hang, too), then ask once more."""
        self._lose()
        self.worker = await self._pool.start()
        for number, (earlier, seen) in enumerate(self._history):
            if await self._ask(earlier) != seen:
                raise EnvironmentFailure(f"played again, answer {number} of the environment is another one")
        return await self._ask(message)

    async def _ask(self, message: Message) -> Observation:
        if self.worker is None:
            raise EnvironmentFailure("the environment is closed, or was never reset")
        try:
            answer = await self._pool.ask(self.worker, message)
        except Lost:
            self._pool.replaced += 1
            raise
        if "refused" in answer:
            raise UserError(answer["refused"])
        if "failure" in answer:
            raise EnvironmentFailure(answer["failure"])
        return to_observation(answer["observation"])

    def _lose(self) -> None:
        if self.worker is not None:
            self._pool.drop(self.worker)
            self.worker = None
