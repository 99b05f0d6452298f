"""The nursery: an interpreter that has imported the environment and nothing heavy else, and forks workers.

`python -m rla.envs.pool.fork_server <socket> <parent>`. A fork of it takes some milliseconds and shares its memory; the
imports (1 to 2 s for TextWorld) are paid once, also for workers that replace dead ones. It ends with its parent, and
its workers end with it.

A worker holds one live environment; it answers questions from a socket and ends when the other end closes.
`EnvironmentFailure` is an answer. Any other exception of an environment is one, too, and the worker's last: the state
that it left behind in this process is unknown.

JSON and not pickle: a worker may run what a model has written, and nothing that it answers is executed here.

| to | message | answer |
|---|---|---|
| nursery | `{"sys_path", "target", "argument"}` | `{"ready": true}` or `{"refused": why}` |
| nursery | one byte with a socket | none: the worker that it starts speaks first on that socket, `{"pid"}` |
| worker | `{"reset": task}`, `{"step": action}` | `{"observation"}`, `{"failure": why}`, `{"refused": why}` |
| worker | `{"close": true}` | none |

A `failure` with `"last": true` is a worker's last answer; one with `"malformed": true` says that an answer was not an
observation.

An actor that a launcher keeps on a cluster holds many episodes and speaks as a worker does, with these beside:

| message | answer |
|---|---|
| `{"stopped": true}`; `"recall": [actions, answers]` beside `step` or `stopped` | as to a step |
| any, of an episode that it does not know | `{"unknown": true}`: it has started again since |
| `{"reset": task}` | has `"abilities"` beside: `stopped`, `recall` |
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
from dataclasses import dataclass
from importlib import import_module
from io import BufferedRWPair
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
from rla.processes.ranks import end_with_parent
from rla.store.records import Task

HEAD = 4  # bytes of a length

PoolMessage = dict[str, Any]


def packed(message: Mapping[str, Any]) -> bytes:
    """The bytes of a message."""
    data = json.dumps(message).encode()
    return len(data).to_bytes(HEAD, "big") + data


def parsed_message(data: bytes) -> PoolMessage:
    """The message of what follows a head."""
    message: PoolMessage = json.loads(data)
    return message


def length(head: bytes) -> int:
    """How many bytes follow the head."""
    return int.from_bytes(head, "big")


def receive_pool_message(stream: BufferedRWPair) -> PoolMessage | None:
    """The next message; None where the other end has closed."""
    head = stream.read(HEAD)
    data = stream.read(length(head)) if len(head) == HEAD else b""
    if not data or len(data) < length(head):
        return None
    return parsed_message(data)


def send(stream: BufferedRWPair, message: Mapping[str, Any]) -> None:
    """Write a message and flush it. Raises OSError where the other end is gone."""
    stream.write(packed(message))
    stream.flush()


def failure_message(failure: EnvironmentFailure) -> PoolMessage:
    """What `failure_in` reads."""
    kind = {"malformed": True} if isinstance(failure, MalformedObservation) else {}
    return {"failure": str(failure), **kind}


def failure_in(message: PoolMessage) -> EnvironmentFailure:
    """The failure that a message tells of."""
    kind = MalformedObservation if message.get("malformed") else EnvironmentFailure
    return kind(message["failure"])


def from_observation(seen: Observation) -> PoolMessage:
    """What `to_observation` reads; images as base64."""
    images = [b64encode(image).decode() for image in seen.images]
    flags = {"won": seen.won, "done": seen.done, "reward": seen.reward, "place": seen.place}
    calls = {"results": [[one.text, one.status] for one in seen.results], "understood": seen.understood}
    return {"text": seen.text, "commands": list(seen.commands), **flags, "images": images, **calls}


def to_observation(data: Mapping[str, Any]) -> Observation:
    """The observation as it was before it was sent: lists are tuples again."""
    return Observation(
        text=data["text"],
        commands=tuple(data["commands"]),
        won=data["won"],
        done=data["done"],
        reward=data["reward"],
        images=tuple(b64decode(image) for image in data["images"]),
        place=data["place"],
        results=tuple(CallResult(*one) for one in data["results"]),
        understood=data["understood"],
    )


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
