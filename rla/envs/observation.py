"""The interface between scheduler and environment: text in, text out. Environments know nothing of language models."""

import asyncio
import inspect
import logging
import math
import traceback
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast, runtime_checkable

from rla.errors import UserError
from rla.store.records import Step
from rla.text import whole_text, whole_texts

log = logging.getLogger(__name__)

SHOWN = 80  # characters of a value in an error


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a tool call: the text that the model reads, and a status, `ok` or the kind of error."""

    text: str
    status: str


@dataclass(frozen=True, slots=True)
class ChatTurns:
    """Turns (role, content) after the reply of step `after`, token for token, or of a new conversation with `tools`."""

    turns: tuple[tuple[str, str], ...]
    after: int | None = None
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """An environment's answer.

    `text`: shown to the agent. `commands`: the admissible actions, in the environment's order; empty if actions are
    free text. `won` ends the episode as a success, `done` ends it. `reward`: the return so far, if the environment
    counts rewards; the episode is won once it reaches `env.reward_threshold`. `images`: PNG files. `place`: identifies
    the state for credit assignment, which compares steps in equal places; if None, steps with equal texts. Models never
    see it. `results`: one per tool call of the action, each shown in its own turn instead of `text`. `understood`:
    whether the action could be parsed. `chat`: the next prompt, in place of one made from `text`.
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
    chat: ChatTurns | None = None

    def success(self, threshold: float) -> bool:
        """Whether the episode is won: the environment says so, or its reward has reached the threshold."""
        return self.won or (self.reward is not None and self.reward >= threshold)


class Environment(Protocol):
    """One episode at a time; `reset` starts a new one from the same initial state."""

    def reset(self) -> Observation: ...

    def step(self, action: str) -> Observation: ...

    def close(self) -> None: ...


class AwaitedEnvironment(Protocol):
    """An `Environment` that answers asynchronously, for example from another process. `close` does not wait."""

    def reset(self) -> Awaitable[Observation]: ...

    def step(self, action: str) -> Awaitable[Observation]: ...

    def close(self) -> None: ...


@runtime_checkable
class Concludes(Protocol):
    """An environment that scores an episode that the scheduler ends, at the step limit or because no reply fits the
    context any more. In other environments such an episode is lost.
    """

    def stopped(self) -> Awaitable[Observation]:
        """The final observation, with the text of the last one."""


@runtime_checkable
class Converses(Protocol):
    """An environment that is told of every reply and its tokens, before the step that it makes."""

    def replied(self, step: Step) -> None: ...


@runtime_checkable
class Recalls(Protocol):
    """An environment that, after a reset, continues an episode played elsewhere."""

    def recall(self, actions: Sequence[str], answers: Sequence[str]) -> None:
        """Record these actions with their answers as the past of the episode. Runs nothing."""


async def settled(answer: Observation | Awaitable[Observation]) -> Observation:
    """The observation of either kind of environment; does not yield to the event loop if there is nothing to await.

    Replaces lone surrogates in its texts. Raises MalformedObservation as `checked_observation` does.
    """
    seen = checked_observation(await answer if inspect.isawaitable(answer) else answer)
    results = tuple(CallResult(whole_text(one.text), whole_text(one.status)) for one in seen.results)
    return replace(seen, text=whole_text(seen.text), commands=whole_texts(seen.commands), results=results)


def checked_observation(answer: Any) -> Observation:
    """Validate that the answer is an `Observation` whose fields have their types; lists become tuples.

    Raises MalformedObservation.
    """
    if not isinstance(answer, Observation):
        raise MalformedObservation(f"the environment answered {_shown(answer)}, which is not an Observation")
    seen = cast("Any", answer)  # an author may have put any type into a field
    reward = seen.reward
    kinds = {"text": str, "won": bool, "done": bool, "place": str | None, "understood": bool, "chat": ChatTurns | None}
    rules = {name: isinstance(getattr(seen, name), kind) for name, kind in kinds.items()} | {
        "commands": _is_row(seen.commands, str),
        "reward": reward is None or (isinstance(reward, int | float) and math.isfinite(reward)),
        "images": _is_row(seen.images, bytes),
        "results": _is_row(seen.results, CallResult)
        and all(isinstance(text, str) for one in seen.results for text in (one.text, one.status)),
    }
    for name, kept in rules.items():
        if not kept:
            found = _shown(getattr(seen, name))
            raise MalformedObservation(f"the environment answered an Observation whose {name} is {found}")
    return replace(
        answer,
        commands=tuple(seen.commands),
        reward=None if reward is None else float(reward),
        images=tuple(seen.images),
        results=tuple(seen.results),
    )


def _is_row(values: Any, kind: type) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(one, kind) for one in values)


def _shown(value: Any) -> str:
    return f"{repr(value)[:SHOWN]} ({type(value).__name__})"


def offered(commands: Iterable[str], omit: Collection[str]) -> tuple[str, ...]:
    """The admissible commands, except for those whose first word is in `omit`."""
    return tuple(command for command in commands if command.split(" ", 1)[0] not in omit)


class EnvironmentFailure(Exception):
    """An environment died or answered nonsense: ends its episode with `env_error`, never the run."""


class MalformedObservation(EnvironmentFailure):
    """An answer that is not a valid `Observation`: a defect of the environment's code."""


@contextmanager
def environment_code(named: str) -> Iterator[None]:
    """Turns any exception of an environment's code, `sys.exit()` too, into an EnvironmentFailure, except for UserError.

    `named`: the environment and its task, for the message.
    """
    try:
        yield
    except MalformedObservation as odd:
        raise EnvironmentFailure(f"{named}: {odd}") from None
    except (EnvironmentFailure, UserError):
        raise
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        task = asyncio.current_task() if isinstance(error, asyncio.CancelledError) else None
        if task is not None and task.cancelling():  # the scheduler ends this episode
            raise
        said = traceback.format_exception_only(error)[-1].strip()
        raise EnvironmentFailure(f"{named}: the environment raised {said}") from error


def close_environment(environment: Environment | AwaitedEnvironment, named: str) -> None:
    """Close it. An error is only logged, because the episode is over."""
    try:
        environment.close()
    except (Exception, SystemExit) as error:
        log.warning("%s: close raised %s: %s", named, type(error).__name__, error)
