"""Hostile requests: frames for the pre-fork server, messages for `rla env serve`.

A request hurts only itself. After each one the server answers a sound request; none of its threads or tasks has raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.attack.areas import Numbered, Try, dice
from tests.attack.hostile import changed, cut, loose_json, text
from tests.attack.inputs import answered_within, within_memory
from tests.attack.small_run import World

CODE = "the code of this server"
CALL = {"kind": "run", "fingerprint": CODE, "arguments": ["--version"], "environment": {}, "cwd": "/", "umask": 18}
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


def frame(lots: Random, sound: Any) -> bytes:
    """The body after its length, or after another one."""
    data = body(lots, sound)
    length = lots.choice((len(data),) * 6 + (0, 1, len(data) + 1, 2**31, 2**32 - 1))
    return (length.to_bytes(4, "big") + data)[: lots.choice((10**9,) * 6 + (0, 2, 4, 6))]


@dataclass(frozen=True, slots=True)
class Requests(Numbered):
    """The two servers in turn."""

    name: str = "requests"

    def opened(self, world: World, scratch: Path) -> Try:
        from tests.unit.serving import counting  # noqa: F401  imported before memory is limited

        within_memory()
        servers = (prefork, served_environment)

        def tried(trial: str) -> str | None:
            lots = dice(world, f"{self.name}/{trial}")
            server = lots.choice(servers)
            with answered_within(30):
                wrong = server(lots, scratch / f"socket-{trial}")
            return wrong and f"{server.__name__}: {wrong}"

        return tried


def prefork(lots: Random, place: Path) -> str | None:
    """One frame, then a sound one."""
    from rla.processes.prefork.handover import ACCEPTED
    from rla.processes.prefork.server import PreforkServer, accept, reap

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(place))
    listener.listen()
    server = PreforkServer(listener=listener, fingerprint=CODE, parent=0, idle_seconds=60)
    own = os.getpid()

    def ask(data: bytes, streams: int) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(place))
            speaking = threading.Thread(target=speak, args=(client, data, streams))
            speaking.start()
            try:
                accept(server)
            finally:
                if os.getpid() != own:
                    os._exit(0)  # a forked child: what it would run does not matter here
            speaking.join()
            client.settimeout(5)
            return client.recv(1)

    try:
        opened = len(os.listdir("/proc/self/fd"))
        ask(frame(lots, CALL), lots.choice((0, 1, 3, 3, 3)))
        while server.children:
            reap(server)
        left = len(os.listdir("/proc/self/fd")) - opened
        ping = json.dumps({"kind": "ping", "fingerprint": CODE}).encode()
        if ask(len(ping).to_bytes(4, "big") + ping, 3) != ACCEPTED:
            return "a sound request is not answered any more"
        return f"{left} descriptors stay open" if left > 0 else None
    finally:
        listener.close()
        server.selector.close()


def speak(client: socket.socket, data: bytes, streams: int) -> None:
    """Send a frame with some descriptors, and nothing more; the server need not listen to its end."""
    with contextlib.suppress(OSError):
        if streams and data:
            socket.send_fds(client, [data[:4]], [2] * streams)
        client.sendall(data[4:] if streams else data)
        client.shutdown(socket.SHUT_WR)


def served_environment(lots: Random, _: Path) -> str | None:
    """A few messages on one connection and one request over HTTP, then a sound episode."""
    from aiohttp import ClientError, WSMsgType

    from rla.serving.openenv_server import ServerLimits
    from tests.unit.serving.counting import Talk, said, talked

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
