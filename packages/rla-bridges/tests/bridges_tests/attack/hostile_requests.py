"""Hostile requests: messages for `rla env serve`.

A request hurts only itself. After each one the server answers a sound request; none of its threads or tasks has raised.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.attack.areas import Numbered, Try, dice
from tests.attack.hostile import changed, cut, loose_json, text
from tests.attack.inputs import answered_within, within_memory
from tests.attack.small_run import World

DEEP = ("[" * 100_000, '{"a":' * 100_000, "[]", "1", "null", '"run"', "NaN", "1e999", "9" * 5000)
PATHS = (
    "/ws",
    "/health",
    "/alfworld/tasks",
    "/alfworld/task",
    "/alfworld/num_tasks",
    "/alfworld/splits",
    "/../x",
    "/%00",
)
SAID = (
    {"type": "reset", "data": {"task_id": "t2"}},
    {"type": "step", "data": {"action": "one"}},
    {"type": "state"},
    {"split": "train", "index": 1},
    {"split": "train", "start": 0, "stop": 2},
)


def body(lots: Random, sound: Any) -> bytes:
    """What stands for a JSON message."""
    kind = lots.randrange(6)
    if kind == 0:
        return lots.choice(DEEP).encode()
    if kind == 1:
        return lots.randbytes(lots.choice((0, 1, 7, 5000)))
    if kind == 2:
        return cut(json.dumps(sound).encode(), lots)
    return loose_json(changed(sound, lots, times=lots.choice((0, 1, 2))), lots).encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Requests(Numbered):
    """One conversation each."""

    name: str = "requests"

    def opened(self, world: World, scratch: Path) -> Try:
        import bridges_tests.serving.counting  # noqa: F401  before memory is limited

        within_memory()

        def tried(trial: str) -> str | None:
            lots = dice(world, f"{self.name}/{trial}")
            with answered_within(30):
                return served_environment(lots)

        return tried


def served_environment(lots: Random) -> str | None:
    """A few messages on one connection and one request over HTTP, then a sound episode."""
    from aiohttp import ClientError, WSMsgType
    from rla_bridges.serving.openenv_server import ServerLimits

    from bridges_tests.serving.counting import Talk, said, talked

    async def talk(end: Talk) -> str | None:
        async with end.session() as web:
            for _ in range(lots.randrange(1, 5)):
                if web.closed:
                    break
                data = body(lots, lots.choice(SAID))
                await (web.send_bytes(data) if lots.random() < 0.1 else web.send_str(data.decode("utf-8", "replace")))
                answer = await asyncio.wait_for(web.receive(), 20)
                if answer.type is WSMsgType.TEXT and json.loads(answer.data).get("type") not in (
                    "error",
                    "observation",
                    "state",
                ):
                    return f"answered with {answer.data[:100]}"
        method, path = lots.choice(("GET", "POST", "PUT", "OPTIONS")), lots.choice(PATHS)
        headers = {"Content-Type": lots.choice(("application/json", "text/plain", "x"))}
        try:
            async with end.http.request(
                method, end.url + path, data=body(lots, lots.choice(SAID)), headers=headers
            ) as got:
                if got.status >= 500:
                    return f"{method} {path}: status {got.status}"
        except ClientError as error:
            return f"{method} {path}: {type(error).__name__}"
        async with end.session() as web:
            found = await said(web, {"type": "reset", "data": {"task_id": text(lots)[:50]}})
            found = await said(web, SAID[0])
            return None if found["type"] == "observation" else f"a sound reset is answered with {str(found)[:100]}"

    wrong: str | None = talked(talk, ServerLimits())
    return wrong
