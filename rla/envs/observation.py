"""The contract between the scheduler and an environment: text in, text out, no knowledge of language models."""

from collections.abc import Awaitable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Observation:
    """What an environment answers: `text` for the agent, `commands` admissible now (the engine's order)."""

    text: str
    commands: tuple[str, ...]
    won: bool
    done: bool


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


async def settled(answer: Observation | Awaitable[Observation]) -> Observation:
    """The observation of either kind of environment, without a turn of the event loop where it is there already."""
    return answer if isinstance(answer, Observation) else await answer


def offered(commands: Iterable[str], omit: Collection[str]) -> tuple[str, ...]:
    """The admissible commands without those whose first word the configuration leaves out."""
    return tuple(command for command in commands if command.split(" ", 1)[0] not in omit)


class EnvironmentFailure(Exception):
    """An environment that died or answered nonsense: it ends its episode with `env_error`, never the run."""
