"""An actor that runs environments on a node of the cluster; a stage calls it through Ray.

It sets up the environments as a stage on that node would: worker processes for slow ones, or a service with its
sandbox. It runs many episodes, each under a number given by the stage, and speaks the protocol of a worker in
`rla.envs.fork_server`, with these messages more:

| message | answer |
|---|---|
| `{"stopped": true}`; `"recall": [actions, answers]` together with `step` or `stopped` | as to a step |
| any message of an unknown episode | `{"unknown": true}`: the actor was restarted |
| `{"reset": task}` | also holds `"abilities"`: `stopped`, `recall` |
"""

from __future__ import annotations

import asyncio
import os
import platform
import traceback
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

from rla.config import Config
from rla.envs.fork_server import PoolMessage, failure_message, from_observation
from rla.envs.observation import (
    AwaitedEnvironment,
    Concludes,
    Environment,
    EnvironmentFailure,
    Observation,
    Recalls,
    settled,
)
from rla.envs.pool import Environments, own_environments
from rla.envs.registry import from_mapping
from rla.errors import UserError
from rla.processes import CORES
from rla.store.records import Task
from rla_ray.code_digest import refuse_other_code

ABILITIES = {"stopped": Concludes, "recall": Recalls}


@dataclass(slots=True, eq=False)
class HeldEpisode:
    """An episode that runs here. `running` is the pending answer."""

    environment: Environment | AwaitedEnvironment | None = None
    running: asyncio.Task[PoolMessage] | None = None


class EnvironmentHost:
    """The methods are called through Ray and run on the actor's event loop.

    `argument`: the stage's whole config as JSON. `cores`: how many of the node's cores it may use. `folder`: the
    stage's working directory, which relative paths in the config start from. `code`: the digest of the stage's code.
    """

    def __init__(self, argument: Mapping[str, Any], *, cores: int, folder: str, code: str) -> None:
        self._argument, self._code = argument, code
        self._cores, self._folder = cores, folder
        self._episodes: dict[int, HeldEpisode] = {}
        self._stack = ExitStack()
        self._made: Environments | None = None

    async def begin(self) -> PoolMessage:
        """End all episodes, ready for new ones: `{"ready": true}`, or `{"refused": reason}` with the node's name."""
        await self.close()
        os.environ[CORES] = str(self._cores)
        with suppress(OSError):  # a node need not see the stage's folder
            os.chdir(self._folder)
        try:
            refuse_other_code(self._code)
            config = _of_one_node(from_mapping(self._argument, where="the parameters of this stage"))
            self._made = self._stack.enter_context(own_environments(config, note=unheard))
            await self._made.prepared()
        except UserError as error:
            await self.close()
            return _refusal_of_node(error)
        return {"ready": True}

    async def answer(self, episode: int, message: PoolMessage) -> PoolMessage:
        """Answer a reset or a step of an episode. The first reset makes the environment."""
        if "reset" in message:
            self._episodes.setdefault(episode, HeldEpisode())
        held = self._episodes.get(episode)
        if held is None or self._made is None:
            return {"unknown": True}
        running = held.running = asyncio.create_task(self._answered(held, message))
        await asyncio.wait({running})
        return {"failure": "the episode was ended"} if running.cancelled() else running.result()

    async def end(self, episode: int) -> None:
        """Close an episode's environment, even in the middle of a step."""
        held = self._episodes.pop(episode, None)
        if held is None:
            return
        if held.running is not None and not held.running.done():
            held.running.cancel()
            await asyncio.wait({held.running})
        if held.environment is not None:
            held.environment.close()

    async def ping(self) -> int:
        """A sign of life: the process id."""
        return os.getpid()

    async def close(self) -> list[Mapping[str, float]]:
        """End all episodes and shared resources. Returns their measurements."""
        for episode in list(self._episodes):
            await self.end(episode)
        made, self._made = self._made, None
        figures: list[Mapping[str, float]] = []
        if made is not None:
            await made.close()
            figures = list(made.figures())
        self._stack.close()
        return figures

    async def _answered(self, held: HeldEpisode, message: PoolMessage) -> PoolMessage:
        try:
            seen = await self._seen(held, message)
        except EnvironmentFailure as failure:
            return failure_message(failure)
        except UserError as error:
            return _refusal_of_node(error)
        except Exception as error:  # the process is the boundary: a fault of one environment ends only its own episode
            said = traceback.format_exception_only(error)[-1].strip()
            return {"failure": f"the environment raised {said}"}
        answer: PoolMessage = {"observation": from_observation(seen)}
        if "reset" in message:
            answer["abilities"] = [name for name, one in ABILITIES.items() if isinstance(held.environment, one)]
        return answer

    async def _seen(self, held: HeldEpisode, message: PoolMessage) -> Observation:
        if "reset" in message:
            if held.environment is None:
                assert self._made is not None
                held.environment = self._made.make(Task(**message["reset"]))
            return await settled(held.environment.reset())
        environment = held.environment
        if environment is None:
            raise EnvironmentFailure("a step of an environment that could not be made")
        if "recall" in message and isinstance(environment, Recalls):
            environment.recall(*message["recall"])
        if "stopped" in message and isinstance(environment, Concludes):
            return await settled(environment.stopped())
        return await settled(environment.step(message["step"]))


def _of_one_node(config: Config) -> Config:
    """The config of a stage that steps its environments on this node only, in separate processes if they allow it."""
    return replace(config, pool=replace(config.pool, backend="local", own=None, mode="always"))


def _refusal_of_node(error: UserError) -> PoolMessage:
    return {"refused": f"node {platform.node()}: {error}; this is needed on every node for pool.backend: ray"}


def unheard(line: str) -> None:
    """Drop the message: the stage counts lost actors, and a worker process that an actor replaced is not news."""
