"""What the abilities of an environment hand out: things that live as long as a stage, in one event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rla.config.sections import CreditConfig
from rla.envs.observation import AwaitedEnvironment
from rla.envs.views import Message
from rla.store.records import Task

if TYPE_CHECKING:
    import polars as pl

Ask = Callable[[list[Message], int], Awaitable[list[str]]]  # so many replies of the language model that proposes


class Service(Protocol):
    """Environments that answer later and share what they run on. One event loop may use it."""

    def make(self, task: Task) -> AwaitedEnvironment: ...

    async def close(self) -> None: ...


@runtime_checkable
class Measured(Protocol):
    """A `Service` that measures what it runs, such as programs. Seconds differ from call to call of a stage, so figures
    stand beside its times and in no shard.
    """

    def figures(self) -> Mapping[str, float]:
        """Of everything so far; empty where nothing was run."""
        ...


class Prober(Protocol):
    """A reward model that writes K replies about a task, once, where others judge each step of each trajectory.

    `tried`: [action][reply], +1 where the action does what the reply demands, -1 where not, None where the reply
    demands nothing that can be read. `reference`: an action that is known to be right, if there is one. Both raise
    EnvironmentFailure. One event loop may use it.
    """

    def messages(self, task: Task) -> list[Message]: ...

    async def tried(self, task: Task, actions: Sequence[str], replies: Sequence[str | None]) -> list[list[int | None]]:
        """A reply that was cut is None."""
        ...

    async def reference(self, task: Task) -> str | None: ...

    async def close(self) -> None: ...


class RewardRule(Protocol):
    """Rewards of an environment's own. `episodes`: trajectory_id, task_id, rollout, status, outcome, n_steps and
    final_observation; `judgements`: trajectory_id, task_id, step, judgement, score and tokens, the number sampled.
    """

    def rewards(
        self, episodes: pl.DataFrame, judgements: pl.DataFrame, config: CreditConfig
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows of `policy_rewards` and of `rm_rewards`, both of the tasks of `episodes` alone."""
        ...

    def metrics(self, episodes: pl.DataFrame, judgements: pl.DataFrame) -> dict[str, Any]:
        """Flat numbers, null where there is nothing to count."""
        ...


class Proof(Protocol):
    """Why a changed task that is well made is refused; empty where it is not. One event loop may use it.

    `proven_in`: names of what it is proven in, kept with the candidates. `remark`: a line for whoever runs the stage;
    empty where there is nothing to say.
    """

    proven_in: tuple[str, ...]
    remark: str

    async def __call__(self, task: Task) -> str: ...

    async def close(self) -> None: ...
