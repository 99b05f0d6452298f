"""The nursery: an interpreter that has imported the environment and nothing heavy else, and forks workers.

`python -m rla.envs.pool.nursery <socket> <parent>`. A fork of it takes some milliseconds and shares its memory; the
imports (1 to 2 s for TextWorld) are paid once, also for workers that replace dead ones. It ends with its parent, and
its workers end with it.

A worker holds one live environment; it answers questions from a socket and ends when the other end closes.
`EnvironmentFailure` is an answer. Any other exception of an environment is one, too, and the worker's last: the state
that it left behind in this process is unknown.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rla.envs.observation import Environment, EnvironmentFailure, Observation, checked_observation
from rla.envs.pool.wire import PoolMessage, failure_message, from_observation, receive_pool_message, send
from rla.errors import UserError
from rla.processes import end_with_parent
from rla.store.records import Task

Maker = Callable[[Task], Environment]


@dataclass(slots=True)
class Host:
    """The environment of the episode that is being played here, if any."""

    make: Maker
    environment: Environment | None = None
    broken: bool = False

    def reset(self, task: Task) -> Observation:
        self.close()
        self.environment = self.make(task)
        return self.environment.reset()

    def step(self, action: str) -> Observation:
        if self.environment is None:
            raise EnvironmentFailure("a step before the first reset")
        return self.environment.step(action)

    def close(self) -> None:
        environment, self.environment = self.environment, None
        if environment is not None:
            environment.close()

    def answer(self, message: PoolMessage) -> PoolMessage:
        """What to say to a reset or a step."""
        try:
            if "reset" in message:
                return {"observation": from_observation(checked_observation(self.reset(Task(**message["reset"]))))}
            return {"observation": from_observation(checked_observation(self.step(message["step"])))}
        except EnvironmentFailure as failure:
            return failure_message(failure)
        except UserError as error:
            return {"refused": str(error)}
        except Exception as error:  # a process is the boundary: the fault of one environment ends one episode
            self.broken = True
            said = traceback.format_exception_only(error)[-1].strip()
            return {"failure": f"the environment raised {said}", "last": True}


def work(connection: socket.socket, make: Maker) -> None:
    """Answer until the other end closes."""
    host = Host(make)
    with connection.makefile("rwb") as stream, contextlib.suppress(BrokenPipeError, ConnectionResetError):
        send(stream, {"pid": os.getpid()})
        while not host.broken and (message := receive_pool_message(stream)) is not None:
            if "close" in message:
                host.close()
            else:
                send(stream, host.answer(message))
    if not host.broken:
        host.close()


FORBIDDEN = ("torch", "vllm")  # their threads and GPU contexts do not survive a fork
GRACE = 2.0  # seconds that workers have to close their environments


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to make environments: `target` is `module:function`; the function takes `argument` (JSON) and gives
    `Task -> Environment`. It is called once, in the nursery: what it imports is imported for all workers.
    """

    target: str
    argument: Mapping[str, Any]


def imported_maker(message: PoolMessage) -> Maker:
    """The function that makes environments. Raises UserError where the environment cannot be had or not be forked."""
    sys.path[:] = message["sys_path"]
    module, _, function = message["target"].partition(":")
    make: Maker = getattr(import_module(module), function)(message["argument"])
    for name in FORBIDDEN:
        if name in sys.modules:
            raise UserError(f"{message['target']} imports {name}, which no fork can use; set pool.mode: never")
    return make


def nurse(control: socket.socket) -> socket.socket | None:
    """Fork a worker for each socket that arrives. In the worker: its socket. In the nursery, at the end: None."""
    own, children = os.getpid(), set[int]()
    while True:
        data, sockets, _, _ = socket.recv_fds(control, 1, 1)
        reap_workers(children)
        if not data:
            break
        pid = os.fork()
        if pid == 0:
            end_with_parent(own)
            control.close()
            return socket.socket(fileno=sockets[0])
        os.close(sockets[0])
        children.add(pid)
    wind_up(children)
    return None


def reap_workers(children: set[int]) -> None:
    """Forget the children that have ended."""
    for pid in list(children):
        if os.waitpid(pid, os.WNOHANG)[0]:
            children.discard(pid)


def wind_up(children: set[int]) -> None:
    """Workers end by themselves, as their sockets are closed, too; one that hangs is killed."""
    until = time.monotonic() + GRACE
    while children and time.monotonic() < until:
        reap_workers(children)
        time.sleep(0.01)
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """0, also where the environment was refused: the stage has been told."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the stage decides
    control = socket.socket(fileno=int(arguments[0]))
    end_with_parent(int(arguments[1]))
    with control.makefile("rwb") as stream:
        message = receive_pool_message(stream)
        if message is None:
            return 0
        try:
            make = imported_maker(message)
        except UserError as error:
            send(stream, {"refused": str(error)})
            return 0
        gc.collect()
        gc.freeze()  # a collection in a worker would copy every page that holds a Python object
        send(stream, {"ready": True})
    connection = nurse(control)
    if connection is not None:
        work(connection, make)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
