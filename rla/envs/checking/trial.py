"""An episode under test: either kind of environment, with a limit for each answer, and what is wrong with an answer."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rla.envs.checking.findings import Overdue, Subject, Unsound, doing, short, within
from rla.envs.checking.required import encodable
from rla.envs.observation import AwaitedEnvironment, Environment, Observation, offered
from rla.store.records import Task

PNG = b"\x89PNG\r\n\x1a\n"
SLACK = 1.0  # seconds after which an awaited answer blocks the event loop


class Trial:
    """One episode at a time. Its methods raise what the environment raises, Overdue, and Unsound."""

    def __init__(self, subject: Subject, task: Task, loop: asyncio.Runner) -> None:
        self._patience, self._loop = subject.patience, loop
        self._omit = subject.config.env.omit_commands
        with within(self._patience), doing(f"in make of the task {short(task.instruction)}"):
            self._game: Environment | AwaitedEnvironment = subject.env.make(task, subject.config)

    def reset(self) -> Observation:
        return self._answer(self._game.reset, after="reset")

    def step(self, action: str) -> Observation:
        return self._answer(lambda: self._game.step(action), after=f"action {short(action)}")

    def close(self) -> None:
        with within(self._patience):
            self._game.close()

    def commands(self, observation: Observation) -> tuple[str, ...]:
        """What the policy is offered."""
        return offered(observation.commands, self._omit)

    def _answer(self, ask: Callable[[], Any], *, after: str) -> Observation:
        with doing(f"at {after}"):
            with within(self._patience):
                answer = ask()
            if inspect.isawaitable(answer):
                answer = self._loop.run(self._awaited(answer))
        complaint = next(unsound(answer, after=after), "")
        if complaint:
            raise Unsound(complaint)
        observation: Observation = answer
        return observation

    async def _awaited(self, answer: Awaitable[Observation]) -> Observation:
        try:
            with within(self._patience + SLACK):
                async with asyncio.timeout(self._patience) as limit:
                    return await answer
        except TimeoutError:
            if limit.expired():
                raise Overdue from None
            raise


@contextmanager
def trial(subject: Subject, task: Task) -> Iterator[Trial]:
    """A trial that is closed at the end."""
    with asyncio.Runner() as loop:
        made = Trial(subject, task, loop)
        try:
            yield made
        finally:
            made.close()


def unsound(observation: Any, *, after: str) -> Iterator[str]:
    """Complaints about what an environment answered `after` a reset or an action."""
    if not isinstance(observation, Observation):
        yield f"{after}: the answer is {short(observation)}; return rla.envs.observation.Observation"
        return
    if not isinstance(observation.text, str) or not encodable(observation.text):
        yield f"{after}: text is {short(observation.text)}; it must be a text that UTF-8 can hold"
    yield from unsound_commands(observation.commands, after=after)
    for name in ("won", "done"):
        if type(getattr(observation, name)) is not bool:
            yield f"{after}: {name} is {short(getattr(observation, name))}; it must be True or False"
    if observation.won and not observation.done:
        yield f"{after}: won without done; an episode that is won is over, so set done as well"
    reward = observation.reward
    if reward is not None and (type(reward) not in (int, float) or not math.isfinite(reward)):
        yield f"{after}: reward is {short(reward)}; it must be a finite number or None"
    place = observation.place
    if place is not None and not (isinstance(place, str) and encodable(place)):
        yield f"{after}: place is {short(place)}; it must be None or a text that UTF-8 can hold"
    if not isinstance(observation.images, tuple):
        yield f"{after}: images is {short(observation.images)}; it must be a tuple of PNG files as bytes"
    elif not all(isinstance(image, bytes) and image.startswith(PNG) for image in observation.images):
        yield f"{after}: an image is no PNG file as bytes; encode it, for example with PIL's save(..., format='PNG')"


def unsound_commands(commands: Any, *, after: str) -> Iterator[str]:
    """Complaints about admissible commands."""
    if not isinstance(commands, tuple) or not all(isinstance(command, str) for command in commands):
        yield f"{after}: commands is {short(commands)}; it must be a tuple of texts"
        return
    if len(set(commands)) < len(commands):
        yield f"{after}: a command is offered twice; name each once"
    if not all(command.strip() and encodable(command) for command in commands):
        yield f"{after}: a command is empty or holds half of a surrogate pair"


def first_difference(first: Sequence[Observation], second: Sequence[Observation], actions: Sequence[str]) -> str:
    """Where two episodes of equal actions part, in words; empty where they do not."""
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        if one != other:
            after = "reset" if number == 0 else f"action {number} ({short(actions[number - 1])})"
            parts = [name for name in Observation.__slots__ if getattr(one, name) != getattr(other, name)]
            values = [short(getattr(each, parts[0])) for each in (one, other)]
            return f"after {after}, {parts[0]} was {values[0]} and then {values[1]}"
    return ""
