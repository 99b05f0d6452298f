"""The fork server of a pool: an interpreter that has imported the environment but nothing heavy, and forks workers.

`python -m rla.envs.fork_server <socket> <parent>`. A fork takes some milliseconds and shares memory; the imports
(1 to 2 s for TextWorld) run once, even if workers die and are replaced. It ends with its parent, and its workers end
with it.

A worker plays one episode. It answers messages from a socket and ends when the other end closes. An
`EnvironmentFailure` is an ordinary answer. After any other exception the worker answers once more and ends, because the
state of its environment is unknown.

Messages are JSON objects, each after its length. They are not pickled: a worker may run code that a model wrote, and
the stage must not execute anything in its answers.

| to | message | answer |
|---|---|---|
| fork server | `{"sys_path", "target", "argument"}` | `{"ready": true}` or `{"refused": reason}` |
| fork server | one byte with a socket | none; the new worker first sends `{"pid"}` on that socket |
| worker | `{"reset": task}`, `{"step": action}` | `{"observation"}`, `{"failure": reason}`, `{"refused": reason}` |

A `failure` with `"malformed": true` is a MalformedObservation.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
import time
import traceback
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from importlib import import_module
from io import BufferedReader
from typing import Any

from rla.envs.observation import (
    CallResult,
    Environment,
    EnvironmentFailure,
    MalformedObservation,
    Observation,
    checked_observation,
)
from rla.errors import UserError
from rla.processes import end_with_parent
from rla.store.records import Task

HEAD = 4  # bytes of a length
FORBIDDEN = ("torch", "vllm")  # their threads and GPU contexts do not survive a fork
GRACE = 2.0  # seconds for workers to close their environments

PoolMessage = dict[str, Any]
Maker = Callable[[Task], Environment]


def packed(message: Mapping[str, Any]) -> bytes:
    data = json.dumps(message).encode()
    return len(data).to_bytes(HEAD, "big") + data


def failure_message(failure: EnvironmentFailure) -> PoolMessage:
    kind = {"malformed": True} if isinstance(failure, MalformedObservation) else {}
    return {"failure": str(failure), **kind}


def from_observation(seen: Observation) -> PoolMessage:
    """The fields of an observation as JSON; images in base64."""
    fields = {name: getattr(seen, name) for name in Observation.__slots__}
    images = [b64encode(image).decode() for image in seen.images]
    return fields | {"images": images, "results": [[one.text, one.status] for one in seen.results]}


def to_observation(data: Mapping[str, Any]) -> Observation:
    """The inverse of `from_observation` after JSON, which turns tuples into lists."""
    lists = {
        "commands": tuple(data["commands"]),
        "images": tuple(b64decode(image) for image in data["images"]),
        "results": tuple(CallResult(*one) for one in data["results"]),
    }
    return Observation(**{**data, **lists})


def _receive(stream: BufferedReader) -> PoolMessage | None:
    """The next message; None if the other end has closed."""
    try:
        size = int.from_bytes(stream.read(HEAD), "big")
        data = stream.read(size)
    except ConnectionResetError:  # it left something unread
        return None
    if not data or len(data) < size:
        return None
    message: PoolMessage = json.loads(data)
    return message


def _send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a message. If the other end has closed, `_receive` says so next."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(packed(message))


def _play(make: Maker, connection: socket.socket) -> None:
    """Play one episode: answer until the other end closes, or the environment breaks."""
    environments: list[Environment] = []

    def observed(message: PoolMessage) -> Observation:
        if "reset" in message:
            for earlier in environments:
                earlier.close()
            environments[:] = [make(Task(**message["reset"]))]
            return environments[0].reset()
        if not environments:
            raise EnvironmentFailure("a step before the first reset")
        return environments[0].step(message["step"])

    with connection.makefile("rb") as stream:
        _send(connection, {"pid": os.getpid()})
        while (message := _receive(stream)) is not None:
            try:
                answer: PoolMessage = {"observation": from_observation(checked_observation(observed(message)))}
            except EnvironmentFailure as failure:
                answer = failure_message(failure)
            except UserError as error:
                answer = {"refused": str(error)}
            except Exception as error:  # a process is the boundary: the fault of one environment ends one episode
                said = traceback.format_exception_only(error)[-1].strip()
                _send(connection, {"failure": f"the environment raised {said}"})
                return
            _send(connection, answer)
    for environment in environments:
        environment.close()


def _fork_workers(control: socket.socket) -> socket.socket | None:
    """Fork a worker for each socket that arrives. Returns its socket in a worker, and None in the server at the end."""
    own, children = os.getpid(), set[int]()
    while True:
        try:
            data, sockets, _, _ = socket.recv_fds(control, 1, 1)
        except ConnectionResetError:  # the stage has ended before it read an answer
            data = b""
        _reap(children)
        if not data:
            break
        pid = os.fork()
        if pid == 0:
            end_with_parent(own)
            control.close()
            return socket.socket(fileno=sockets[0])
        os.close(sockets[0])
        children.add(pid)
    until = time.monotonic() + GRACE  # workers end by themselves now, because their sockets are closed, too
    while children and time.monotonic() < until:
        _reap(children)
        time.sleep(0.01)
    for pid in children:  # those that hang
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return None


def _reap(children: set[int]) -> None:
    for pid in list(children):
        if os.waitpid(pid, os.WNOHANG)[0]:
            children.discard(pid)


def main(arguments: list[str]) -> int:
    """Returns 0 even if the environment was refused, because the stage reports that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the stage decides
    control = socket.socket(fileno=int(arguments[0]))
    end_with_parent(int(arguments[1]))
    with control.makefile("rb") as stream:
        message = _receive(stream)
    if message is None:
        return 0
    sys.path[:] = message["sys_path"]
    module, _, function = message["target"].partition(":")
    try:
        make: Maker = getattr(import_module(module), function)(message["argument"])
        if name := next(filter(sys.modules.__contains__, FORBIDDEN), ""):
            raise UserError(f"{message['target']} imports {name}, which no fork can use; set pool.mode: never")
    except UserError as error:
        _send(control, {"refused": str(error)})
        return 0
    gc.collect()
    gc.freeze()  # a collection in a worker would copy every page that holds a Python object
    _send(control, {"ready": True})
    connection = _fork_workers(control)
    if connection is not None:
        _play(make, connection)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
