"""The contract between the scheduler and an environment: text in, text out, no knowledge of language models."""

from collections.abc import Awaitable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


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
    """The observation of either kind of environment, without a turn of the event loop where it is there already."""
    return answer if isinstance(answer, Observation) else await answer


def offered(commands: Iterable[str], omit: Collection[str]) -> tuple[str, ...]:
    """The admissible commands without those whose first word the configuration leaves out."""
    return tuple(command for command in commands if command.split(" ", 1)[0] not in omit)


class EnvironmentFailure(Exception):
    """An environment that died or answered nonsense: it ends its episode with `env_error`, never the run."""
