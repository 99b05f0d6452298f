"""A small environment to serve, and a server that serves it while a test talks to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
from rla_bridges.serving.connections import Connections
from rla_bridges.serving.env_session import ServedEnv
from rla_bridges.serving.openenv_server import OpenEnvServer, ServerLimits, serving
from rla_bridges.serving.served_tasks import ServedTasks

from rla.envs.observation import EnvironmentFailure, Observation
from rla.errors import UserError
from rla.store.records import Task
from tests.unit.builders import configured, task

TRAIN = tuple(task(f"t{number}", instruction=f"count to {number}") for number in range(1, 4))
TEST = (task("v9", split="test", payload="a secret"),)


class Counting:
    """Counts the steps; the task's number wins. `alive` counts environments that nobody has closed."""

    alive = 0

    def __init__(self, goal: int) -> None:
        self.goal, self.steps = goal, 0
        Counting.alive += 1

    def reset(self) -> Observation:
        return Observation(text="0", commands=("one", "help me"))

    def step(self, action: str) -> Observation:
        self.steps += 1
        if action == "break":
            raise EnvironmentFailure("it broke")
        if action == "defect":
            raise ZeroDivisionError
        if action == "nan":
            return Observation(text="?", reward=float("nan"))
        return Observation(text=f"{self.steps} {action}", commands=("one",), won=self.steps == self.goal)

    def close(self) -> None:
        Counting.alive -= 1


def counting(chosen: Task) -> Counting:
    if chosen.split == "test":
        raise UserError("/secret/place: no such engine")
    return Counting(int(chosen.task_id[1:]))


def served(make: Callable[[Task], Any] = counting, *overrides: str) -> ServedEnv:
    tasks = ServedTasks(splits={"train": TRAIN, "test": TEST}, by_id={each.task_id: each for each in TRAIN + TEST})
    return ServedEnv(config=configured(*overrides), tasks=tasks, make=make)


class Talk:
    """A client's end."""

    def __init__(self, url: str, http: aiohttp.ClientSession, stop: Callable[[], Awaitable[None]]) -> None:
        self.url, self.http, self.stop = url, http, stop

    def session(self, **headers: str) -> Any:
        return self.http.ws_connect(f"{self.url}/ws", headers=headers)


async def said(socket: aiohttp.ClientWebSocketResponse, message: Any) -> Any:
    """The answer to a message, which is sent as it is where it is a text."""
    await (socket.send_str(message) if isinstance(message, str) else socket.send_json(message))
    return await asyncio.wait_for(socket.receive_json(), 5)


@asynccontextmanager
async def talking(limits: ServerLimits, env: ServedEnv, connections: Connections | None = None) -> AsyncIterator[Talk]:
    server, stop = OpenEnvServer(env, limits), AsyncExitStack()
    if connections is not None:
        server.connections = connections
    async with stop, aiohttp.ClientSession() as http:
        port = await stop.enter_async_context(serving(server, host="127.0.0.1", port=0))
        yield Talk(f"http://127.0.0.1:{port}", http, stop.aclose)


def talked(
    talk: Callable[[Talk], Any],
    limits: ServerLimits | None = None,
    env: ServedEnv | None = None,
    connections: Connections | None = None,
) -> Any:
    """What `talk` returns, with a server for it to talk to."""

    async def run() -> Any:
        async with talking(limits or ServerLimits(), env or served(), connections) as end:
            return await talk(end)

    return asyncio.run(run())
