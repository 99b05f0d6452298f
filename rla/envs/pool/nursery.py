"""The nursery: an interpreter that has imported the environment and nothing heavy else, and forks workers.

`python -m rla.envs.pool <socket> <parent>`. A fork of it takes some milliseconds and shares its memory; the
imports (1 to 2 s for TextWorld) are paid once, also for workers that replace dead ones. It ends with its parent, and
its workers end with it.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rla.envs.pool.wire import PoolMessage, receive_pool_message, send
from rla.envs.pool.worker import Maker, work
from rla.errors import UserError
from rla.processes.ranks import end_with_parent

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
