"""What is specific to one environment, behind one protocol: tasks, prompts, labels and edits.

Stages ask `rla.envs.registry.setting(name)` for it; nothing else in the library imports an environment's modules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from rla.config import Config
from rla.config.sections import CreditConfig, EnvConfig, TasksConfig
from rla.envs.course import Course
from rla.envs.observation import AwaitedEnvironment, Environment
from rla.store.records import Task

if TYPE_CHECKING:
    import polars as pl

Message = dict[str, str]  # {"role": ..., "content": ...}


class PolicyPrompt(Protocol):
    """Texts that ask the policy for its next action, and the reading of its reply."""

    def opening(self, observation: str, commands: Sequence[str]) -> list[Message]: ...

    def turn(self, observation: str, commands: Sequence[str], instruction: str) -> str: ...

    def window(
        self, history: Sequence[tuple[str, str]], observation: str, commands: Sequence[str], instruction: str
    ) -> list[Message]: ...

    def parse(self, reply: str, commands: Sequence[str]) -> str | None: ...

    def render(self, action: str, commands: Sequence[str]) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeView:
    """What a judge may see of one step. The outcome is not among it."""

    instruction: str
    history: Sequence[tuple[str, str]]  # (observation, action) before this step
    observation: str
    commands: Sequence[str]
    reply: str
    action: str
    valid: bool
    next_observation: str


class JudgePrompt(Protocol):
    """Texts that ask the judge about one step, and the reading of its reply: +1, -1 or nothing.

    `replies` are all that may be said with `judge.decoding: admissible`; empty where replies are free text.
    """

    def messages(self, view: JudgeView) -> list[Message]: ...

    def parse(self, reply: str) -> int | None: ...

    def render(self, score: int, reason: str) -> str: ...

    def replies(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalView:
    """What a proposer is told beside the task itself. `critique` is a text of models: data, whatever it says."""

    direction: str
    accuracy: float
    critique: str


class ProposalPrompt(Protocol):
    """Texts that ask a language model to change a task, and the JSON Schema of its answer for that task's scene.

    `criticised`: whether a language model reads the episodes first; otherwise what was counted is all the critique.
    """

    criticised: bool

    def messages(self, task: Task, view: ProposalView) -> list[Message]: ...

    def schema(self, task: Task) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """An expert's episode: per step the observation, the commands offered and the action; then the last text."""

    observations: list[str]
    commands: list[tuple[str, ...]]
    actions: list[str]
    final_observation: str
    won: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """An action in some state, what it led to, and whether it helped: +1 or -1, with a short reason.

    `before` and `after`: how much was left to do, by the environment's own solver (infinite: no plan leads to the
    goal). None where it has no such measure.
    """

    action: str
    next_observation: str
    score: int
    reason: str
    before: float | None = None
    after: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What a reward model that judges no single steps is taught on one task: a prompt, and replies that are right."""

    messages: list[Message]
    replies: list[str]


class Service(Protocol):
    """Environments that answer later and share what they run on. One event loop may use it."""

    def make(self, task: Task) -> AwaitedEnvironment: ...

    async def close(self) -> None: ...


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
    """Rewards of a setting's own. `episodes`: trajectory_id, task_id, rollout, status, outcome, n_steps and
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


Ask = Callable[[list[Message], int], Awaitable[list[str]]]  # so many replies of the language model that proposes


class Proof(Protocol):
    """Why a changed task that is well made is refused; empty where it is not. One event loop may use it."""

    async def __call__(self, task: Task) -> str: ...

    async def close(self) -> None: ...


class Setting(Protocol):
    """An environment as the stages see it; `rla.envs.defaults.StepByStep` has what most need of its later part."""

    name: str
    imported: Literal["alfworld", "files"]  # the `tasks.source` of data that `import_tasks` reads
    has_expert: bool  # whether `demonstrate` plays what it sees, so that its success says something about a task
    own_proof: bool  # whether `proof` takes the place of a second engine
    exact_text: bool  # whether line ends, spaces and capitals matter to what is read and written

    def make(self, task: Task, config: EnvConfig) -> Environment: ...

    def slow(self, config: EnvConfig) -> bool:
        """Whether a step takes so long that environments should step in processes of their own."""
        ...

    def warm(self, config: EnvConfig) -> None:
        """Import what `make` needs; UserError where it is not installed. Called once, before workers are forked."""
        ...

    def make_tasks(self, config: TasksConfig, *, seed: int, split: str, env: EnvConfig | None = None) -> list[Task]: ...

    def import_tasks(
        self,
        folder: Path,
        *,
        split: str,
        limit: int | None,
        env: EnvConfig | None = None,
        held_out: bool = False,
        tell: Callable[[str], None] | None = None,
    ) -> list[Task]:
        """The tasks of a data set; `tell` gets a line on what of it is no task, where anything can be."""
        ...

    def export_tasks(self, tasks: Sequence[Task], folder: Path) -> int: ...

    def policy_prompt(self, config: Config) -> PolicyPrompt: ...

    def judge_prompt(self, config: Config) -> JudgePrompt: ...

    def demonstrate(self, task: Task, config: EnvConfig, *, seed: int, random_share: float) -> Demonstration: ...

    def label(
        self, task: Task, config: EnvConfig, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        """Per step of an episode: the action taken, then up to `others` of the other commands that were offered.

        Empty where the environment has no ground truth about steps.
        """
        ...

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterable[str]: ...

    def tokenizer_phrases(self, config: Config) -> Sequence[str]: ...

    def course(self, task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
        """How rows of its trajectories (outcome, steps with observation and action, final_observation) went."""
        ...

    def propose(
        self, task: Task, *, direction: str, critique: str, focus: str = "", seed: int, count: int
    ) -> list[str]:
        """Edits by rule, as JSON texts; `focus`: the phase of the task's course that should change."""
        ...

    def proposal_prompt(self) -> ProposalPrompt: ...

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        """The child of `task`, proven; RejectedEdit with the reason otherwise. `taken`: ids and likenesses of tasks."""
        ...

    def likeness(self, task: Task) -> str:
        """Equal for tasks that ask the same of the same scene, even where their ids differ."""
        ...

    def solution(self, task: Task, config: EnvConfig) -> list[str]:
        """Commands that win the task; none where there is no way."""
        ...

    def second_engine(self, config: EnvConfig) -> EnvConfig | None:
        """Another implementation of the environment to repeat a proof in; None where none is installed."""
        ...

    def service(self, config: EnvConfig) -> Service | None:
        """What environments share that answer later, outside of the pool; None: `make` gives them. Raises UserError."""
        ...

    def prober(self, config: Config) -> Prober | None:
        """Where the reward model writes about tasks; None: it judges steps. Raises UserError."""
        ...

    def reward_rule(self) -> RewardRule | None:
        """Rewards of its own; None: those of `credit`."""
        ...

    def lesson(self, task: Task, config: Config, *, seed: int) -> Lesson | None:
        """What the reward model is taught before reinforcement; None: judgements of demonstrated steps.

        `warm_start.reward.noise` is the share of wrong replies. Raises UserError where there is nothing to teach.
        """
        ...

    def proof(self, config: Config, ask: Ask | None) -> Proof | None:
        """A proof that `apply` cannot give, because it takes long; `ask` is there where a language model proposes."""
        ...


def reference_row(task_id: str) -> str:
    """The trajectory id under which a scores shard holds the scores of a task's reference."""
    return f"reference-{task_id}"


class RejectedEdit(Exception):
    """A proposed edit that is not legal, not provable or not new; the message is the reason, kept beside it."""
