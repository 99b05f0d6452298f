"""The interface of an environment. `Env` is required; every other ability is an optional protocol.

`docs/guide/bring-an-environment.md` has a table of them, which says what a run has to do without each.

A class implements a protocol by having its members; it inherits from nothing. A stage that depends on an ability asks
for it with `need`. The protocols above `Env` describe the objects that environments return: the prompts, and services
that live as long as a stage, in one event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from rla.config import Config
from rla.config.sections import CreditConfig
from rla.envs.observation import AwaitedEnvironment, Environment
from rla.errors import UserError
from rla.store.records import Direction, Judgement, Task

if TYPE_CHECKING:
    import polars as pl


Message = dict[str, str]  # {"role": ..., "content": ...}
Ask = Callable[[list[Message], int], Awaitable[list[str]]]  # that many replies of the language model that proposes


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeView:
    """One step as a judge sees it, without the outcome of the episode."""

    instruction: str
    history: Sequence[tuple[str, str]]  # (observation, action) before this step
    observation: str
    commands: Sequence[str]
    reply: str
    action: str
    valid: bool
    next_observation: str
    images: tuple[tuple[bytes, ...], ...] = ()  # PNG files of the last observations; this step's come last
    next_images: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalView:
    """The context of a proposal. `critique` was written by models and is untrusted."""

    direction: str
    accuracy: float
    critique: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """An expert's episode: for each step the observation, the commands offered and the action; then the last text.

    `images`: the PNG files of every observation, including the last; empty if the environment shows no images.
    """

    observations: list[str]
    commands: list[tuple[str, ...]]
    actions: list[str]
    final_observation: str
    won: bool
    images: Sequence[tuple[bytes, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """An action, the observation after it, and whether it helped: +1 or -1, with a short reason.

    `before` and `after`: the remaining work according to the environment's own solver (infinite: the goal cannot be
    reached), None if it has no such measure. `next_images`: the images of the next observation.
    """

    action: str
    next_observation: str
    score: int
    reason: str
    before: float | None = None
    after: float | None = None
    next_images: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStep:
    """A recorded step: its action, the environment's answer, and the status of each tool call it made, in order."""

    action: str
    answer: str
    statuses: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A supervised example for a reward model that does not judge single steps: a prompt and correct replies."""

    messages: list[Message]
    replies: list[str]


class RejectedEdit(Exception):
    """A proposed edit that is illegal, unprovable or a duplicate; the message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """`name`: the environment's identifier ("finding"), `about`: the same for people ("finding the mug").

    `ended`: lost episodes that never left the phase. `steps`: all steps that were taken in it.
    """

    name: str
    about: str
    ended: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """In which phase the episodes of a task ended and how they spent their steps. Every episode goes through the phases
    of its task in order; a phase ends when its goal is reached. `spent`: kinds of actions with their counts, most
    frequent first.
    """

    episodes: int
    won: int
    phases: tuple[Phase, ...]
    spent: tuple[tuple[str, int], ...]

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    def focus(self, direction: Direction) -> str:
        """The name of the phase to change: the one in which most episodes ended (easier), or the one with the fewest
        steps (harder). The first one in a tie; empty if no phase qualifies.
        """
        if direction is Direction.EASIER:
            worst = max((phase for phase in self.phases if phase.ended), key=lambda phase: phase.ended, default=None)
            return worst.name if worst else ""
        return min(self.phases, key=lambda phase: phase.steps).name if self.phases and self.episodes else ""

    def told(self) -> str:
        """One line for a critique: outcomes, phases in which failures ended, shares of the steps."""
        if not self.episodes:
            return ""
        ended = ", ".join(f"{phase.about} {phase.ended}" for phase in self.phases if phase.ended)
        steps = self.steps or 1
        shares = ", ".join(f"{phase.about} {phase.steps / steps:.0%}" for phase in self.phases)
        spent = ", ".join(f"{kind} {count / steps:.0%}" for kind, count in self.spent[:4])
        parts = [f"won {self.won} of {self.episodes}, {self.steps / self.episodes:.1f} steps on average"]
        parts += [f"failures ended at: {ended}"] if ended else []
        parts += [f"steps by phase: {shares}", f"by action: {spent}"] if self.steps else []
        return "; ".join(parts)


class PolicyPrompt(Protocol):
    """The prompts of the policy, and the parser of its replies."""

    def opening(self, observation: str, commands: Sequence[str]) -> list[Message]: ...

    def turn(self, observation: str, commands: Sequence[str], instruction: str) -> str: ...

    def window(
        self, history: Sequence[tuple[str, str]], observation: str, commands: Sequence[str], instruction: str
    ) -> list[Message]: ...

    def parse(self, reply: str, commands: Sequence[str]) -> str | None: ...

    def render(self, action: str, commands: Sequence[str]) -> str: ...


@runtime_checkable
class ToolPrompt(Protocol):
    """A `PolicyPrompt` whose policy may call tools.

    `schemas`: JSON Schemas of the functions, printed by the chat template; empty if the template is not given any.
    `result_role`: the role of the turns that hold results, `tool` or `user`.
    """

    schemas: Sequence[Mapping[str, Any]]
    result_role: str

    def calls_in(self, reply: str) -> Sequence[tuple[str, Mapping[str, Any], str]]:
        """(name, arguments, error) of each call; the error is empty if the call is readable. All are model text."""

    def unread_call(self, reply: str, name: str, arguments: Mapping[str, Any]) -> str:
        """Why `calls_in` does not find this call of a chat template in a reply, with the remedy; empty if it does."""


def told_schemas(prompt: PolicyPrompt) -> Sequence[Mapping[str, Any]]:
    """The functions that the chat template is given; empty for prompts without tools."""
    return prompt.schemas if isinstance(prompt, ToolPrompt) else ()


class JudgePrompt(Protocol):
    """The prompt of a judge about one step, and the parser of its reply: +1, -1 or None.

    `replies`: all replies that `judge.decoding: admissible` allows; empty if replies are free text.
    """

    def messages(self, view: JudgeView) -> list[Message]: ...

    def parse(self, reply: str) -> int | None: ...

    def render(self, score: int, reason: str) -> str: ...

    def replies(self) -> tuple[str, ...]: ...


class ProposalPrompt(Protocol):
    """The prompt that asks a language model to change a task, and the JSON Schema of its answer.

    `criticised`: whether a language model reads the episodes first; otherwise the critique holds counts only.
    """

    criticised: bool

    def messages(self, task: Task, view: ProposalView) -> list[Message]: ...

    def schema(self, task: Task) -> Mapping[str, Any]: ...


class Service(Protocol):
    """Shared infrastructure of environments that answer asynchronously. Used by one event loop."""

    def make(self, task: Task) -> AwaitedEnvironment: ...

    async def close(self) -> None: ...


@runtime_checkable
class Measured(Protocol):
    """A `Service` that measures its work, such as the programs it runs.

    Seconds differ from call to call of a stage, so the figures go into the record of its times, not into a shard.
    """

    def figures(self) -> Mapping[str, float]:
        """Totals since the start; empty if nothing was run."""


class Prober(Protocol):
    """Runs a reward model that writes K replies about a task, once, instead of judging each step of each trajectory.

    `judged`: the rows of a scores shard for the task's trajectories `rows`, each a trajectory_id (or a name of the
    environment's own) with K judgements: the scores of the replies for this trajectory. Text and tokens of the replies
    stand in the first row alone: they were sampled once, and train once. Raises EnvironmentFailure. Used by one event
    loop.
    """

    def messages(self, task: Task) -> list[Message]: ...

    async def judged(
        self, task: Task, rows: Sequence[Mapping[str, Any]], replies: Sequence[Judgement]
    ) -> list[tuple[str, list[Judgement]]]: ...

    async def close(self) -> None: ...


class RewardRule(Protocol):
    """Rewards that an environment defines itself. `episodes`: trajectory_id, task_id, rollout, status, outcome, n_steps
    and final_observation; `judgements`: trajectory_id, task_id, step, judgement, score and tokens (number sampled).
    """

    def rewards(
        self, episodes: pl.DataFrame, judgements: pl.DataFrame, config: CreditConfig
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows of `policy_rewards` and of `rm_rewards` for the tasks of `episodes`."""

    def metrics(self, episodes: pl.DataFrame, judgements: pl.DataFrame) -> dict[str, Any]:
        """Flat numbers, null if there is nothing to count."""


class Proof(Protocol):
    """Returns why a well-formed changed task is refused; empty if it is accepted. Used by one event loop."""

    async def __call__(self, task: Task) -> str: ...

    async def close(self) -> None: ...


@runtime_checkable
class Env(Protocol):
    """The required interface.

    `name`: the value of `env.name` that selects it. `Params`: a frozen dataclass of the environment's own parameters,
    each with a default; `config.env.own` is an instance of it.
    """

    name: str
    Params: type

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        """The environment's own tasks of a split, at most `config.tasks.count(split)`. Equal arguments return equal
        tasks, and the splits are disjoint.
        """

    def make(self, task: Task, config: Config) -> Environment | AwaitedEnvironment:
        """One episode of the task, before its reset. Raises UserError if it cannot be created on this machine."""

    def policy_prompt(self, config: Config) -> PolicyPrompt: ...


@runtime_checkable
class Checks(Protocol):
    """Refuses combinations of parameters when they are read: raises UserError naming the key to change."""

    def check(self, config: Config) -> None: ...


@runtime_checkable
class Judged(Protocol):
    """A reward model judges each step."""

    def judge_prompt(self, config: Config) -> JudgePrompt: ...


@runtime_checkable
class Probes(Protocol):
    """A reward model writes about whole tasks, and the environment tries its replies on the policy's actions."""

    def prober(self, config: Config) -> Prober:
        """Raises UserError if this machine cannot run it."""

    def reward_rule(self) -> RewardRule: ...


@runtime_checkable
class Shares(Protocol):
    """Episodes of a stage share a service and answer asynchronously; they need no pool of processes."""

    def service(self, config: Config) -> Service:
        """Raises UserError if it cannot be started."""


@runtime_checkable
class Spreads(Protocol):
    """A `Shares` whose episodes compute on the machine of their service, so that each node of a cluster may run one
    (`pool.backend`). Its episodes are deterministic: if a node is lost, they are replayed on another.
    """

    def spreads(self, config: Config) -> bool: ...


@runtime_checkable
class Pooled(Protocol):
    """Episodes may step in worker processes."""

    def slow(self, config: Config) -> bool:
        """Whether a step takes long enough that they should."""

    def warm(self, config: Config) -> None:
        """Import the dependencies of `make`, once before workers are forked. Raises UserError if one is missing."""


@runtime_checkable
class Imports(Protocol):
    """Tasks of a data set (`tasks.path`)."""

    def import_tasks(self, config: Config, *, split: str, tell: Callable[[str], None] | None = None) -> list[Task]:
        """The tasks of the data at `config.tasks.path`, at most `config.tasks.limit`. `tell` receives one line about
        each group of rows that were left out. Raises UserError.
        """


@runtime_checkable
class Vocabulary(Protocol):
    """Texts from which `init-model` builds a word-level tokenizer; without them it builds one of characters.

    `exact_text`: whether line breaks, spaces and capitals matter.
    """

    exact_text: bool

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterable[str]: ...

    def tokenizer_phrases(self, config: Config) -> Sequence[str]: ...


@runtime_checkable
class Demonstrates(Protocol):
    """Episodes for behaviour cloning."""

    def demonstrate(self, task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
        """An episode in which this share of the actions is random."""


@runtime_checkable
class Teaches(Protocol):
    """Supervised examples for a reward model that does not judge single steps."""

    def lesson(self, task: Task, config: Config, *, seed: int) -> Lesson:
        """`config.warm_start.reward.noise` is the share of wrong replies. Raises UserError if nothing can be taught."""


@runtime_checkable
class Labels(Protocol):
    """Ground truth about steps."""

    def label(
        self, task: Task, config: Config, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        """For each step: its action, then up to `others` of other offered commands. Empty if the task is unknown."""


@runtime_checkable
class LabelsSeen(Protocol):
    """Ground truth about the steps of a recorded episode, for environments that cannot replay it."""

    def label_seen(self, task: Task, config: Config, steps: Sequence[SeenStep]) -> Sequence[Labelled]:
        """One label per step. Empty if the task is unknown."""


@runtime_checkable
class Concurrent(Protocol):
    """`demonstrate`, `label` and `label_seen` are slow and may be called from several threads."""

    def concurrency(self, config: Config) -> int:
        """How many calls at a time are useful, at least 1. It must not change their results."""


@runtime_checkable
class HasExpert(Protocol):
    """A player that only sees observations, so its success is evidence about a task."""

    def play_expert(self, task: Task, config: Config, *, seed: int) -> Demonstration: ...


@runtime_checkable
class Adapts(Protocol):
    """Tasks can be changed by edits, which are JSON objects. `edit_fields`: the names that an edit may have."""

    edit_fields: frozenset[str]

    def course(self, task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
        """Progress of its trajectories: rows of outcome, steps (observation and action) and final_observation."""

    def propose(self, task: Task, *, direction: str, focus: str = "", seed: int, count: int) -> list[str]:
        """Rule-based edits, as JSON texts; `focus`: the phase of the task's course that should change."""

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        """The child of `task`, proven solvable; raises RejectedEdit otherwise. `taken`: ids and likenesses of tasks."""

    def likeness(self, task: Task) -> str:
        """Equal for tasks that ask the same of the same scene, even if their ids differ."""


@runtime_checkable
class Configurable(Protocol):
    """An `Adapts` whose proposed edits depend on parameters."""

    def configured(self, config: Config) -> Adapts:
        """The environment that proposes the edits of `config.adaptation.edits`, or its usual edits if that is empty."""


@runtime_checkable
class AsksModel(Protocol):
    """A language model may propose edits."""

    def proposal_prompt(self) -> ProposalPrompt: ...


@runtime_checkable
class Proves(Protocol):
    """A proof that is too slow for `Adapts.apply`."""

    def proof(self, config: Config, ask: Ask | None) -> Proof:
        """`ask` is given if a language model proposes. Raises UserError if proofs are not available on this machine."""


# The abilities that `rla envs` lists.
ABILITIES: tuple[type, ...] = (
    *(Judged, Probes, Shares, Spreads, Pooled, Imports, Vocabulary, Demonstrates, Teaches, Labels),
    *(LabelsSeen, HasExpert, Adapts, AsksModel, Proves, Checks),
)
# What a user can set if the environment lacks the ability.
REMEDIES: dict[type, str] = {
    Judged: "set judge.enabled: false",
    Imports: "set tasks.path: null",
    Demonstrates: "set warm_start.enabled: false",
    Labels: "set warm_start.enabled: false",
    Adapts: "set adaptation.enabled: false",
    AsksModel: "set adaptation.proposer: rules",
}
Ability = TypeVar("Ability")
Answer = TypeVar("Answer")


def need(env: Env, ability: type[Ability], stage: str, *, instead: str = "choose another environment") -> Ability:
    """`env`, typed as that ability. Raises UserError naming the protocol and the remedy; `instead` is the remedy for an
    ability that a package defines.
    """
    if isinstance(env, ability):
        return env
    raise UserError(
        f"env.name: {env.name} does not implement {ability.__name__} ({ability.__module__}), which {stage} needs; "
        f"{REMEDIES.get(ability, instead)}"
    )


def prefetched(calls: Iterable[Callable[[], Answer]], env: object, config: Config) -> Iterator[Callable[[], Answer]]:
    """For each call, in order, a function that returns its result or raises its exception.

    If `env` is `Concurrent`, calls run ahead in threads; otherwise each runs when its function is called.
    """
    count = env.concurrency(config) if isinstance(env, Concurrent) else 1
    if count == 1:
        yield from calls
        return
    waiting: deque[Future[Answer]] = deque()
    with ThreadPoolExecutor(count) as pool:
        try:
            for call in calls:
                waiting.append(pool.submit(call))
                if len(waiting) == 2 * count:  # twice as many, so that a slow first call does not leave threads idle
                    yield waiting.popleft().result
            while waiting:
                yield waiting.popleft().result
        finally:
            for left in waiting:
                left.cancel()
