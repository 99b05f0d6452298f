"""An environment that does as its actions say: answers, sleeps, dies, hangs, raises. It is played in a pool's workers.

`<word>-once` does it the first time only: a file in the task's payload remembers.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rla.envs.observation import EnvironmentFailure, Observation
from rla.errors import UserError
from rla.store.records import Task

FAULTS = ("die", "hang", "raise", "fail")
HERE = os.getpid()  # of the process that imported this module


class Odd:
    """Its observations tell all actions so far, so that an episode that lost one would show it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.actions: list[str] = []

    def reset(self) -> Observation:
        self.actions = []
        return self.observe()

    def step(self, action: str) -> Observation:
        word, _, once = action.partition("-")
        mark = self.folder / word
        if word in FAULTS and not (once and mark.exists()):
            mark.touch()
            self.act(word)
        self.actions.append(action)
        return self.observe(extra=str(os.getpid()) if word == "who" else "")

    def act(self, word: str) -> None:
        if word == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if word == "hang":
            time.sleep(600)
        if word == "raise":
            raise RuntimeError("a wall fell over")
        if word == "fail":
            raise EnvironmentFailure("the corridor collapsed")

    def observe(self, extra: str = "") -> Observation:
        text = f"{' '.join(self.actions)}|{extra}|{HERE}|{os.getpid()}" if extra else " ".join(self.actions)
        return Observation(text=text, commands=("north", "south"), won=False, done=False)

    def close(self) -> None:
        pass


def maker(argument: Mapping[str, Any]) -> Callable[[Task], Odd]:
    """`argument`: what to go wrong with at the start."""
    if argument.get("missing"):
        raise UserError("the odd package is not installed")
    if argument.get("torch"):
        sys.modules["torch"] = types.ModuleType("torch")
    if argument.get("die"):
        sys.exit(3)
    if argument.get("disconnected"):
        raise ConnectionResetError("its own service is gone")
    return lambda task: Odd(Path(task.payload))
