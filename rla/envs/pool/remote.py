"""The stage's end of a nursery and of a worker: start it, ask it, end it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass

from rla.envs.pool.nursery import Recipe
from rla.envs.pool.wire import HEAD, PoolMessage, length, packed, parsed_message
from rla.errors import UserError

START_SECONDS = 300.0  # a cold disk and a busy machine included
END_SECONDS = 5.0
# One thread each: workers are the parallelism. One hash seed: an environment that walks a set answers alike in all.
FIXED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}


class Lost(Exception):
    """A worker that died or did not answer in time; the message says which."""


@dataclass(slots=True, eq=False)
class Channel:
    """Messages over a socket, without a stream: that would read ahead, and belong to one event loop."""

    socket: socket.socket

    async def send(self, message: PoolMessage) -> None:
        """Raises OSError where the other end is gone."""
        await asyncio.get_running_loop().sock_sendall(self.socket, packed(message))

    async def receive(self) -> PoolMessage:
        """The next message. Raises EOFError or OSError where the other end is gone."""
        return parsed_message(await self._exactly(length(await self._exactly(HEAD))))

    async def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = await asyncio.get_running_loop().sock_recv(self.socket, count - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    @property
    def silent(self) -> bool:
        """Whether the other end is there and has said nothing."""
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False


def pair() -> tuple[Channel, socket.socket]:
    """The stage's end, and the one for another process."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return Channel(ours), theirs


@dataclass(slots=True, eq=False)
class Worker:
    """One worker process. Not `usable` by another episode: it owes an answer, or has given its last one."""

    pid: int
    channel: Channel
    usable: bool = True

    async def ask(self, message: PoolMessage, *, seconds: float) -> PoolMessage:
        """The answer. Raises Lost after `seconds`, or as soon as the process has died."""
        self.usable = False
        try:
            async with asyncio.timeout(seconds):
                await self.channel.send(message)
                answer = await self.channel.receive()
        except TimeoutError:
            raise Lost(f"did not answer within {seconds:g} s") from None
        except (EOFError, OSError):
            raise Lost("died") from None
        self.usable = "last" not in answer
        return answer

    def free(self) -> bool:
        """Have it close its environment; False where it is not to be used again."""
        try:
            silent = self.usable and self.channel.silent
            return silent and bool(self.channel.socket.send(packed({"close": True})))
        except OSError:
            return False

    def end(self) -> None:
        """Close its socket, at which it ends by itself; one that is not usable is killed."""
        if not self.usable:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.channel.socket.close()


@dataclass(slots=True, eq=False)
class Nursery:
    """The process that forks workers. Popen starts a fresh interpreter: nothing of this process goes with it."""

    process: subprocess.Popen[bytes]
    channel: Channel
    ready: bool = False

    @classmethod
    def start(cls, recipe: Recipe) -> Nursery:
        """Start it and let it import; `worker` waits until it is ready."""
        channel, theirs = pair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "rla.envs.pool.nursery", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # the stage's own is for its summary
                env=os.environ | FIXED,
                pass_fds=[theirs.fileno()],
            )
        message = {"sys_path": sys.path, "target": recipe.target, "argument": dict(recipe.argument)}
        with contextlib.suppress(BrokenPipeError):  # it died at once; whoever wants a worker hears of it
            channel.socket.send(packed(message))
        return cls(process, channel)

    async def worker(self) -> Worker:
        """A new worker. Raises Lost where the nursery has died, UserError where it refuses the environment."""
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._wait()
                channel, theirs = pair()
                with theirs:
                    socket.send_fds(self.channel.socket, [b"w"], [theirs.fileno()])
                hello = await channel.receive()
        except TimeoutError:
            raise Lost(f"did not start within {START_SECONDS:g} s") from None
        except (EOFError, OSError):
            raise Lost("the process that starts workers died") from None
        return Worker(pid=hello["pid"], channel=channel)

    async def _wait(self) -> None:
        if not self.ready:
            answer = await self.channel.receive()
            if "refused" in answer:
                raise UserError(answer["refused"])
            self.ready = True

    def end(self) -> None:
        """Close its socket, at which it ends as soon as its workers have; kill it where that takes too long, or where
        it still imports.
        """
        self.channel.socket.close()
        if not self.ready:
            self.process.kill()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
