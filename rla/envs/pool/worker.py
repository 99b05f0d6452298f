"""A worker: one live environment, questions from a socket, answers to it. It ends when the other end closes.

`EnvironmentFailure` is an answer. Any other exception of an environment is one, too, and the worker's last: what it
left behind in this process is not known.
"""

from __future__ import annotations

import contextlib
import os
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from rla.envs.observation import Environment, EnvironmentFailure, Observation, checked_observation
from rla.envs.pool.wire import PoolMessage, failure_message, from_observation, receive_pool_message, send
from rla.errors import UserError
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
