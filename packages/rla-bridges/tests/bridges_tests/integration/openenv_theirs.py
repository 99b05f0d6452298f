"""Run with an interpreter that has the package `openenv`: its server for our client, its client for our server.

python openenv_theirs.py serve         prints {"dig": port, "say": port, "tools": port} and serves until it is ended
python openenv_theirs.py play URL      plays our server, and prints what it saw as a line of JSON
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from openenv.core import GenericEnvClient
from openenv.core.env_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State
from pydantic import Field

SIZE, HOLE, TURNS = 3, 3, 4


class Cell(Action):
    row: int = Field(ge=0, le=HOLE)
    column: int = Field(ge=0, le=HOLE)


class Ground(Observation):
    message: str
    tries: int


class Dig(Environment):
    """A treasure lies where the seed says; each try costs a tenth, the treasure is worth one and a half."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.tries, self.cell = 0, (0, 0)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Ground:
        rng = random.Random(seed)
        self.tries, self.cell = 0, (rng.randrange(SIZE), rng.randrange(SIZE))
        return Ground(message="Dig.", tries=0, metadata={"cell": list(self.cell)})

    def step(self, action: Cell, timeout_s: float | None = None, **_: Any) -> Ground:
        self.tries += 1
        if (action.row, action.column) == (HOLE, HOLE):
            raise ValueError("the ground gives way")
        found = (action.row, action.column) == self.cell
        message = "You found it." if found else "row" if action.row != self.cell[0] else "column"
        done = found or self.tries == TURNS
        return Ground(message=message, tries=self.tries, reward=1.5 if found else -0.1, done=done)

    @property
    def state(self) -> State:
        return State(step_count=self.tries)

    def get_metadata(self) -> EnvironmentMetadata:
        return EnvironmentMetadata(name="dig", description="Find the treasure.")


class Said(Action):
    message: str


class Heard(Observation):
    echo: str


class Say(Environment):
    """Repeats what it hears; longer texts earn more."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Heard:
        return Heard(echo=f"seed {seed}")

    def step(self, action: Said, timeout_s: float | None = None, **_: Any) -> Heard:
        return Heard(echo=action.message, reward=len(action.message) / 10)

    @property
    def state(self) -> State:
        return State()


class Tools(MCPEnvironment):
    """Adds numbers by a tool."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        mcp = FastMCP("adding")

        @mcp.tool
        def add(a: int, b: int = 1) -> str:
            """Add two numbers."""
            return str(a + b)

        super().__init__(mcp)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Observation:
        return Observation()

    def _step_impl(self, action: Action, timeout_s: float | None = None, **_: Any) -> Observation:
        return Observation(metadata={"error": "no such action"})

    @property
    def state(self) -> State:
        return State()


async def serve() -> None:
    apps = {
        "dig": create_app(Dig, Cell, Ground, env_name="dig", max_concurrent_envs=2),
        "say": create_app(Say, Said, Heard, env_name="say"),
        "tools": create_app(Tools, CallToolAction, CallToolObservation, env_name="tools", max_concurrent_envs=8),
    }
    options: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "log_level": "error"}
    impatient = {"ws_ping_interval": 0.5, "ws_ping_timeout": 0.5}
    servers = {name: uvicorn.Server(uvicorn.Config(app, **options, **impatient)) for name, app in apps.items()}
    running = [asyncio.create_task(server.serve()) for server in servers.values()]
    while not all(server.started for server in servers.values()):
        await asyncio.sleep(0.05)
    ports = {name: server.servers[0].sockets[0].getsockname()[1] for name, server in servers.items()}
    print(json.dumps(ports), flush=True)
    await asyncio.gather(*running)


def play(url: str, solutions: dict[str, list[str]]) -> dict[str, Any]:
    """Each task's solution, then what the protocol's own client makes of errors and of the state."""
    played: dict[str, Any] = {"episodes": {}}
    with GenericEnvClient(base_url=url).sync() as env:
        for task_id, actions in solutions.items():
            results = [env.reset(episode_id=task_id), *[env.step({"action": action}) for action in actions]]
            played["episodes"][task_id] = [
                [result.observation["text"], result.observation["commands"], result.reward, result.done]
                for result in results
            ]
        played["state"] = env.state()
        played["errors"] = []
        for action in ({"action": "look"}, {"nonsense": 1}):
            try:
                env.step(action)
            except RuntimeError as error:
                played["errors"].append(str(error))
        by_seed = [env.reset(seed=seed).observation["task_id"] for seed in (0, 1, 0)]
        played["by_seed"] = by_seed
    clients = [GenericEnvClient(base_url=url).sync() for _ in range(2)]
    try:
        played["at_once"] = [client.reset(seed=number).observation["task_id"] for number, client in enumerate(clients)]
    finally:
        for client in clients:
            client.close()
    return played


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(serve())
    else:
        print(json.dumps(play(sys.argv[2], json.load(sys.stdin))))
