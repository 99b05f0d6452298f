"""The server's end: one event loop that holds the engines and answers the stages' connections.

A connection that ends, for whatever reason, takes its requests, sessions and lease along.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rla.config.load import build
from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.llm.base import Completion, Generator
from rla.llm.kept_engines import Wanted
from rla.llm.resident_messages import (
    MAGIC,
    OPEN,
    PING,
    STOP,
    Message,
    NotOurs,
    completion_data,
    error_data,
    pack_message,
    read_message,
    request_of,
    session_of,
)
from rla.llm.resident_seats import Seats
from rla.processes.prefork.server import alive

if TYPE_CHECKING:
    pass

log = logging.getLogger("rla.llm.resident_server")

TICK = 1.0  # seconds between looks at the parent and the clock
PRELOADED = ("rla.llm.transformers_engine", "rla.models.load", "transformers.models.qwen3.modeling_qwen3")
LATE = 1.0  # seconds that a pass waits for a stage to act on its replies; a stage that is late is waited for no more


@dataclass(slots=True, kw_only=True)
class EngineServer:
    """State of the process. `parent` 0 means that no process is watched."""

    code: str
    parent: int
    idle_seconds: float
    seats: Seats = field(default_factory=Seats)
    connections: set[asyncio.Task[None]] = field(default_factory=set)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    used: float = field(default_factory=time.monotonic)
    opened: int = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its first message to its end."""
        task = asyncio.current_task()
        assert task is not None
        self.connections.add(task)
        self.opened += 1
        try:
            await self._serve(reader, writer, name=f"stage {self.opened}")
        except NotOurs as error:
            log.warning("a connection was closed: %s", error)
        except (EOFError, OSError):
            pass  # the other end is gone
        finally:
            self.connections.discard(task)
            self.used = time.monotonic()
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, name: str) -> None:
        first = await read_message(reader)
        if first.get("magic") != MAGIC:
            raise NotOurs(f"its first message has no {MAGIC}")
        kind, same = first.get("kind"), first.get("code") == self.code
        accepted = kind == STOP or (kind in (OPEN, PING) and same)
        writer.write(pack_message({"magic": MAGIC, "accepted": accepted}))
        await writer.drain()
        if kind == STOP:
            self.stopping.set()
        elif not same:
            log.warning("%s has other code than this server", name)
        elif kind == OPEN:
            await self._lease(first, reader, writer, name)

    async def _lease(
        self, first: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str
    ) -> None:
        stage = Stage(name=name, reader=reader, writer=writer)
        try:
            async with self.seats.lease(wanted_of(first), stage, stage.answered) as engine:
                log.info(
                    "%s: %s", name, first["model"] if engine else "refused, the engine is in use with other weights"
                )
                writer.write(pack_message({"context": engine.context if engine else None}))
                if engine is not None:
                    await stage.listen(engine)
        except (UserError, ValueError, RuntimeError) as error:
            log.exception("%s: no engine", name)
            writer.write(pack_message({"error": error_data(error)}))
            await writer.drain()


def wanted_of(message: Message) -> Wanted:
    """What an `open` asks for. Raises NotOurs."""
    try:
        return Wanted(
            model=str(message["model"]),
            config=build(GeneratorConfig, message["config"], "the stage", "generator."),
            stop_ids=tuple(int(token) for token in message["stop_ids"]),
            seed=int(message["seed"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise NotOurs(f"a malformed open ({type(error).__name__}: {error})") from error


class Stage:
    """A connection that holds a lease: its requests in the engine, and answers on their way."""

    def __init__(self, *, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._name = name
        self._reader, self._writer = reader, writer
        self._tasks: dict[int, asyncio.Task[list[Completion]]] = {}
        self._sessions: set[str] = set()
        self._replies: list[Message] = []  # not sent yet
        self._turn = 0
        self._acted = asyncio.Event()  # on the last turn's replies
        self._acted.set()
        self._late = False

    async def listen(self, engine: Generator) -> None:
        """Take calls until the stage ends the connection."""
        try:
            while True:
                message = await read_message(self._reader)
                for call in message["calls"]:
                    self._take(call, engine)
                if message["turn"] == self._turn:
                    self._late = False
                    self._acted.set()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise NotOurs(f"{self._name}: a malformed message ({error})") from error
        finally:
            self._acted.set()
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self._replies.clear()
            for session in self._sessions:
                engine.release(session)

    async def answered(self) -> None:
        """Wait until the stage has acted on the replies that it was sent, but not for one that is late."""
        self._send()
        if self._acted.is_set() or self._late:
            return
        try:
            await asyncio.wait_for(self._acted.wait(), LATE)
        except TimeoutError:
            self._late = True

    def _take(self, call: Message, engine: Generator) -> None:
        if "release" in call:
            session = session_of(call["release"], owner=self._name)
            self._sessions.discard(session)
            engine.release(session)
        elif "cancel" in call:
            task = self._tasks.get(call["cancel"])
            if task is not None:
                task.cancel()
        else:
            name = int(call["id"])
            if name in self._tasks:
                raise ValueError(f"the id {name} is there twice")
            try:
                request = request_of(call, owner=self._name)
            except NotOurs as flaw:  # of this request alone
                self._reply(name, {"error": error_data(ValueError(str(flaw)))})
                return
            if request.session is not None:
                self._sessions.add(request.session)
            task = asyncio.create_task(engine.generate(request))
            task.add_done_callback(partial(self._done, name))
            self._tasks[name] = task

    def _done(self, name: int, task: asyncio.Task[list[Completion]]) -> None:
        """Answer a request, with its error where it has one: the stage is told, and the server goes on."""
        del self._tasks[name]
        if task.cancelled():
            return
        error = task.exception()
        try:
            if error is None:
                self._reply(name, {"completions": list(map(completion_data, task.result()))})
        except UserError as flaw:
            error = flaw
        if error is not None:
            log.error("%s: request %d", self._name, name, exc_info=error)
            self._reply(name, {"error": error_data(error)})

    def _reply(self, name: int, reply: Message) -> None:
        if not self._replies:
            asyncio.get_running_loop().call_soon(self._send)
        self._replies.append({"id": name, **reply})

    def _send(self) -> None:
        """What has been answered since the last time, in one frame."""
        replies, self._replies = self._replies, []
        if replies:
            self._turn += 1
            self._acted.clear()
            self._writer.write(pack_message({"turn": self._turn, "replies": replies}))


async def serve_engine(server: EngineServer, listener: socket.socket) -> None:
    """Answer until told to stop, idle for too long, or without the process that is served."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stopping.set)
    async with await asyncio.start_unix_server(server.accept, sock=listener):
        while not (server.stopping.is_set() or engine_expired(server)):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.stopping.wait(), TICK)
        for task in tuple(server.connections):
            task.cancel()
        await asyncio.gather(*server.connections, return_exceptions=True)
    server.seats.close()


def engine_expired(server: EngineServer) -> bool:
    """Nobody is connected, and the parent is gone or nobody has been for too long."""
    if server.connections:
        return False
    if server.parent and not alive(server.parent):
        return True
    return time.monotonic() - server.used > server.idle_seconds


def main(arguments: list[str]) -> int:
    """`<file descriptor of the listening socket> <its path> <parent or 0> <idle seconds> <code>`."""
    listener, path = socket.socket(fileno=int(arguments[0])), Path(arguments[1])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger().setLevel(logging.WARNING)
    log.setLevel(logging.INFO)
    server = EngineServer(parent=int(arguments[2]), idle_seconds=float(arguments[3]), code=arguments[4])
    try:
        for name in PRELOADED:
            import_module(name)
        asyncio.run(serve_engine(server, listener))
    finally:
        path.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
