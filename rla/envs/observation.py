"""The contract between the scheduler and an environment: text in, text out, no knowledge of language models."""

import inspect
import logging
import math
import traceback
from collections.abc import Awaitable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast, runtime_checkable

from rla.errors import UserError
from rla.store.texts import whole_text, whole_texts

log = logging.getLogger(__name__)

SHOWN = 80  # characters of a value in an error


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call of a tool gave: the text that the model reads, and how it ended, `ok` or a word for why not."""

    text: str
    status: str


@dataclass(frozen=True, slots=True)
class Observation:
    """What an environment answers.

    `text`: what the agent reads. `commands`: what is admissible now, in the environment's order; empty where actions
    are free text. `won` ends the episode as a success, `done` ends it. `reward`: what the episode has earned so far,
    for environments that count rewards; the episode is won once it reaches `env.reward_threshold`. `images`: PNG files.
    `place`: what state the episode is in, equal for states that credit may compare with each other; without it those
    are compared that read alike. It is never shown to a model. `results`: of the calls of a tool that the action made,
    each shown in a turn of its own in place of `text`. `understood`: whether the action could be read.
    """

    text: str
    commands: tuple[str, ...] = ()
    won: bool = False
    done: bool = False
    reward: float | None = None
    images: tuple[bytes, ...] = ()
    place: str | None = None
    results: tuple[CallResult, ...] = ()
    understood: bool = True

    def success(self, threshold: float) -> bool:
        """Whether the episode is won: the environment says so, or its reward has reached the threshold."""
        return self.won or (self.reward is not None and self.reward >= threshold)


class Environment(Protocol):
    """One episode at a time; `reset` starts a new one from the same initial state."""

    def reset(self) -> Observation: ...

    def step(self, action: str) -> Observation: ...

    def close(self) -> None: ...


class AwaitedEnvironment(Protocol):
    """An `Environment` that answers later: it steps in another process. `close` answers at once."""

    def reset(self) -> Awaitable[Observation]: ...

    def step(self, action: str) -> Awaitable[Observation]: ...

    def close(self) -> None: ...


@runtime_checkable
class Concludes(Protocol):
    """An environment that says how an episode stands where somebody else ends it: at the last step that may be taken,
    or where no reply fits any more. An episode of any other environment is lost there.
    """

    def stopped(self) -> Awaitable[Observation]:
        """The end of the episode, with the text of the last observation."""
        ...


@runtime_checkable
class Recalls(Protocol):
    """A reset environment that takes up an episode which was played elsewhere."""

    def recall(self, actions: Sequence[str], answers: Sequence[str]) -> None:
        """As if they had been taken, each with what was answered to it. Nothing is run."""
        ...


async def settled(answer: Observation | Awaitable[Observation]) -> Observation:
    """The observation of either kind of environment, without a turn of the event loop if it is there already.

    Halves of surrogate pairs in its texts are replaced. Raises MalformedObservation as `checked_observation` does.
    """
    seen = checked_observation(await answer if inspect.isawaitable(answer) else answer)
    results = tuple(CallResult(whole_text(one.text), whole_text(one.status)) for one in seen.results)
    return replace(seen, text=whole_text(seen.text), commands=whole_texts(seen.commands), results=results)


def checked_observation(answer: Any) -> Observation:
    """The answer of an environment if it is an `Observation` whose fields have their types; lists become tuples.

    Raises MalformedObservation.
    """
    if not isinstance(answer, Observation):
        raise MalformedObservation(f"the environment answered {shown_answer(answer)}, which is not an Observation")
    seen = cast("Any", answer)  # any type may stand behind a name
    reward = seen.reward
    rules = {
        "text": isinstance(seen.text, str),
        "commands": is_row(seen.commands, str),
        "won": isinstance(seen.won, bool),
        "done": isinstance(seen.done, bool),
        "reward": reward is None or (isinstance(reward, int | float) and math.isfinite(reward)),
        "images": is_row(seen.images, bytes),
        "place": isinstance(seen.place, str | None),
        "results": is_row(seen.results, CallResult)
        and all(isinstance(text, str) for one in seen.results for text in (one.text, one.status)),
        "understood": isinstance(seen.understood, bool),
    }
    for name, kept in rules.items():
        if not kept:
            found = shown_answer(getattr(seen, name))
            raise MalformedObservation(f"the environment answered an Observation whose {name} is {found}")
    return replace(
        answer,
        commands=tuple(seen.commands),
        reward=None if reward is None else float(reward),
        images=tuple(seen.images),
        results=tuple(seen.results),
    )


def is_row(values: Any, kind: type) -> bool:
    """Whether it is a list or a tuple of such values."""
    return isinstance(values, list | tuple) and all(isinstance(one, kind) for one in values)


def shown_answer(value: Any) -> str:
    """A value as an error shows it."""
    try:
        text = repr(value)
    except Exception:  # of somebody else's class
        text = "a value"
    return f"{text[:SHOWN]} ({type(value).__name__})"


def offered(commands: Iterable[str], omit: Collection[str]) -> tuple[str, ...]:
    """The admissible commands without those whose first word the configuration leaves out."""
    return tuple(command for command in commands if command.split(" ", 1)[0] not in omit)


class EnvironmentFailure(Exception):
    """An environment that died or answered nonsense: it ends its episode with `env_error`, never the run."""


class MalformedObservation(EnvironmentFailure):
    """An answer that breaks the contract of `Observation`: a defect of the environment's code."""


@contextmanager
def environment_code(named: str) -> Iterator[None]:
    """Inside, whatever an environment's code raises is an EnvironmentFailure, but for what the user can mend.

    `named`: the environment and its task, for the message.
    """
    try:
        yield
    except MalformedObservation as odd:
        raise EnvironmentFailure(f"{named}: {odd}") from None
    except (EnvironmentFailure, UserError):
        raise
    except Exception as error:
        said = traceback.format_exception_only(error)[-1].strip()
        raise EnvironmentFailure(f"{named}: the environment raised {said}") from error


def close_environment(environment: Environment | AwaitedEnvironment, named: str) -> None:
    """Close it. An error is a warning: the episode is over."""
    try:
        environment.close()
    except Exception as error:
        log.warning("%s: close raised %s: %s", named, type(error).__name__, error)
