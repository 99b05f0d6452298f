"""What an environment offers. `Env` is required; every further ability is a protocol of its own, and optional.

| protocol | members | who asks for it |
|---|---|---|
| `Env` | `name`, `Params`, `tasks`, `make`, `policy_prompt` | every stage |
| `Checks` | `check` | whoever reads parameters |
| `Answers`, `Predicts` | `answer`; `prediction` | evaluate: majority votes |
| `Groups` | `family_of_kind` | evaluate: success by family |
| `Judged` | `judge_prompt` | score-steps |
| `Probes` | `prober`, `reward_rule` | score-steps, compute-rewards: a reward model that writes about tasks |
| `Shares`, `Spreads`, `Pooled` | `service`; `spreads`; `slow`, `warm` | rollout |
| `Imports`, `Exports` | `import_tasks`; `export_tasks` | make-tasks |
| `Vocabulary` | `exact_text`, `tokenizer_texts`, `tokenizer_phrases` | init-model |
| `Demonstrates`, `Teaches` | `demonstrate`; `lesson` | warm-start |
| `Labels`, `LabelsSeen` | `label`; `label_seen` | warm-start, diagnostics |
| `HasExpert` | `play_expert` | verdicts |
| `Adapts` | `edit_fields`, `course`, `propose`, `apply`, `likeness` | adapt-env |
| `Tailors`, `AsksModel`, `Proves` | `tailored`; `proposal_prompt`; `proof` | adapt-env |

An environment has an ability where its class has these members: it inherits from nothing. A stage that cannot do
without one asks for it with `need`. The protocols above `Env` are what abilities hand out: things that live as long as
a stage, in one event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from rla.config import Config
from rla.config.sections import CreditConfig
from rla.envs.observation import AwaitedEnvironment, Environment
from rla.envs.views import Course, Demonstration, JudgeView, Labelled, Lesson, Message, ProposalView, SeenStep
from rla.errors import UserError
from rla.store.records import Task

if TYPE_CHECKING:
    import polars as pl


Ask = Callable[[list[Message], int], Awaitable[list[str]]]  # so many replies of the language model that proposes


class PolicyPrompt(Protocol):
    """Texts that ask the policy for its next action, and the reading of its reply."""

    def opening(self, observation: str, commands: Sequence[str]) -> list[Message]: ...

    def turn(self, observation: str, commands: Sequence[str], instruction: str) -> str: ...

    def window(
        self, history: Sequence[tuple[str, str]], observation: str, commands: Sequence[str], instruction: str
    ) -> list[Message]: ...

    def parse(self, reply: str, commands: Sequence[str]) -> str | None: ...

    def render(self, action: str, commands: Sequence[str]) -> str: ...


@runtime_checkable
class ToolPrompt(Protocol):
    """What a `PolicyPrompt` has beside where the policy may call tools.

    `schemas`: JSON Schemas of the functions, which the chat template prints; none where it is told nothing of them.
    `result_role`: of the turns in which results are told, `tool` or `user`.
    """

    schemas: Sequence[Mapping[str, Any]]
    result_role: str


@runtime_checkable
class WritesCalls(Protocol):
    """What a `ToolPrompt` has beside where calls may come as data, as chat servers send them."""

    def written(self, text: str, calls: Sequence[tuple[str, str]]) -> str:
        """The reply with `text` first and then the calls, each a name and arguments as JSON text, which a model wrote
        and which may be no JSON at all.
        """
        ...


@runtime_checkable
class ChecksCalls(Protocol):
    """A `ToolPrompt` that can tell whether it reads what a chat template writes."""

    schemas: Sequence[Mapping[str, Any]]

    def unread_call(self, reply: str, name: str, arguments: Mapping[str, Any]) -> str:
        """Why it does not find this call in a reply, with the remedy; empty if it does."""
        ...


@runtime_checkable
class ReadsCalls(Protocol):
    """A `PolicyPrompt` of a tool, for whoever shows episodes."""

    def calls_in(self, reply: str) -> Sequence[tuple[str, Mapping[str, Any], str]]:
        """Name, arguments and, of a call that cannot be read, why; all of it is text of a model."""
        ...


@runtime_checkable
class ReadsTranscripts(Protocol):
    """A `PolicyPrompt` of a tool, for whoever judges episodes that were played elsewhere. Nothing is run."""

    def turns_in(self, text: str) -> Sequence[tuple[str, str | None]]:
        """The replies in a text, each with what was answered to it (None: nothing); at least one."""
        ...

    def called(self, reply: str) -> int:
        """How many calls a reply makes, those that cannot be read included."""
        ...


def told_schemas(prompt: PolicyPrompt) -> Sequence[Mapping[str, Any]]:
    """The functions that a chat template is told of; none where the prompt knows no tools."""
    return prompt.schemas if isinstance(prompt, ToolPrompt) else ()


class JudgePrompt(Protocol):
    """Texts that ask the judge about one step, and the reading of its reply: +1, -1 or nothing.

    `replies` are all that may be said with `judge.decoding: admissible`; empty where replies are free text.
    """

    def messages(self, view: JudgeView) -> list[Message]: ...

    def parse(self, reply: str) -> int | None: ...

    def render(self, score: int, reason: str) -> str: ...

    def replies(self) -> tuple[str, ...]: ...


class ProposalPrompt(Protocol):
    """Texts that ask a language model to change a task, and the JSON Schema of its answer for that task's scene.

    `criticised`: whether a language model reads the episodes first; otherwise what was counted is all the critique.
    """

    criticised: bool

    def messages(self, task: Task, view: ProposalView) -> list[Message]: ...

    def schema(self, task: Task) -> Mapping[str, Any]: ...


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


@runtime_checkable
class Env(Protocol):
    """The required interface.

    `name`: by which `env.name` finds it. `Params`: a frozen dataclass of the environment's own parameters, with a
    default for each; `config.env.own` is an instance of it.
    """

    name: str
    Params: type

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        """The environment's own tasks of a split. `config.tasks.count(split)` says how many are asked for; there may be
        fewer. Equal arguments give equal tasks, and no task is in two splits.
        """
        ...

    def make(self, task: Task, config: Config) -> Environment | AwaitedEnvironment:
        """One episode of the task, not yet reset. Raises UserError where it cannot be made on this machine."""
        ...

    def policy_prompt(self, config: Config) -> PolicyPrompt: ...


@runtime_checkable
class Checks(Protocol):
    """Parameters that do not go together are refused when they are read: UserError with the key to change."""

    def check(self, config: Config) -> None: ...


@runtime_checkable
class Answers(Protocol):
    """Episodes end with an answer, and different episodes may give the same one."""

    def answer(self, task: Task, config: Config, reply: str) -> str | None:
        """The class that the answer of an episode votes in (maj@k): equal for answers that say the same, None where
        `reply` holds no answer, as where it calls a tool. It is the last action, which was read and not cut.
        """
        ...


@runtime_checkable
class Predicts(Protocol):
    """What an `Answers` has beside where the text that is compared is not the whole action (published maj@k)."""

    def prediction(
        self, task: Task, config: Config, actions: Sequence[str], answers: Sequence[str], *, ended: bool
    ) -> str | None:
        """That text as it is, None for none. `answers`: to each action. `ended`: the last one was read and not cut."""
        ...


@runtime_checkable
class Judged(Protocol):
    """A reward model judges each step."""

    def judge_prompt(self, config: Config) -> JudgePrompt: ...


@runtime_checkable
class Probes(Protocol):
    """A reward model writes about whole tasks, and the environment tries what it wrote on the policy's actions."""

    def prober(self, config: Config) -> Prober:
        """Raises UserError where nothing can be tried on this machine."""
        ...

    def reward_rule(self) -> RewardRule: ...


@runtime_checkable
class Groups(Protocol):
    """Kinds of tasks that ask for one skill are a family, and evaluations measure it. A kind of none is its own."""

    def family_of_kind(self, kind: str) -> str: ...


@runtime_checkable
class Shares(Protocol):
    """Episodes of a stage share a service, and answer later; they need no pool of processes. UserError without one."""

    def service(self, config: Config) -> Service: ...


@runtime_checkable
class Spreads(Protocol):
    """What a `Shares` has beside where its episodes compute on the machine of their service, so that each node of a
    cluster may have a service of its own (`pool.backend`). They are deterministic: one that is lost with its node
    is played again on another.
    """

    def spreads(self, config: Config) -> bool:
        """Whether they do so with these parameters."""
        ...


@runtime_checkable
class Pooled(Protocol):
    """Episodes may step in processes of their own."""

    def slow(self, config: Config) -> bool:
        """Whether a step takes so long that they should."""
        ...

    def warm(self, config: Config) -> None:
        """Import what `make` needs. Called once, before workers are forked. UserError where it is not installed."""
        ...


@runtime_checkable
class Imports(Protocol):
    """Tasks of a data set (`tasks.source: files`)."""

    def import_tasks(self, config: Config, *, split: str, tell: Callable[[str], None] | None = None) -> list[Task]:
        """The tasks of the data at `config.tasks.path`, at most `config.tasks.limit`. `tell` gets a line on what of it
        is no task. Raises UserError.
        """
        ...


@runtime_checkable
class Exports(Protocol):
    """Tasks as files of the environment's own format (`--export`)."""

    def export_tasks(self, tasks: Sequence[Task], folder: Path) -> int:
        """Returns the number of files."""
        ...


@runtime_checkable
class Vocabulary(Protocol):
    """What a small new model may have to read and write; without it `init-model` makes a tokenizer of characters.

    `exact_text`: whether line ends, spaces and capitals matter.
    """

    exact_text: bool

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterable[str]: ...

    def tokenizer_phrases(self, config: Config) -> Sequence[str]: ...


@runtime_checkable
class Demonstrates(Protocol):
    """Episodes that a policy may be cloned from."""

    def demonstrate(self, task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
        """An episode in which a share of the actions is drawn at random."""
        ...


@runtime_checkable
class Teaches(Protocol):
    """What a reward model that judges no single steps is taught before reinforcement."""

    def lesson(self, task: Task, config: Config, *, seed: int) -> Lesson:
        """`config.warm_start.reward.noise` is the share of wrong replies. UserError where there is nothing to teach."""
        ...


@runtime_checkable
class Labels(Protocol):
    """Ground truth about steps."""

    def label(
        self, task: Task, config: Config, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        """Per step of an episode: the action taken, then up to `others` of the other commands that were offered. Empty
        where nothing is known of the task.
        """
        ...


@runtime_checkable
class LabelsSeen(Protocol):
    """Ground truth about the steps of an episode that was played, for environments that cannot replay it."""

    def label_seen(self, task: Task, config: Config, steps: Sequence[SeenStep]) -> Sequence[Labelled]:
        """One label per step. Empty where nothing is known."""
        ...


@runtime_checkable
class HasExpert(Protocol):
    """A player that sees observations only: its success says something about a task."""

    def play_expert(self, task: Task, config: Config, *, seed: int) -> Demonstration: ...


@runtime_checkable
class Adapts(Protocol):
    """Tasks can be changed by edits, which are JSON objects. `edit_fields`: the names that an edit may have."""

    edit_fields: frozenset[str]

    def course(self, task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
        """How rows of its trajectories (outcome, steps with observation and action, final_observation) went."""
        ...

    def propose(
        self, task: Task, *, direction: str, critique: str, focus: str = "", seed: int, count: int
    ) -> list[str]:
        """Edits by rule, as JSON texts; `focus`: the phase of the task's course that should change."""
        ...

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        """The child of `task`, proven; RejectedEdit with the reason otherwise. `taken`: ids and likenesses of tasks."""
        ...

    def likeness(self, task: Task) -> str:
        """Equal for tasks that ask the same of the same scene, even where their ids differ."""
        ...


@runtime_checkable
class Tailors(Protocol):
    """What an `Adapts` has beside where the edits that it proposes depend on parameters."""

    def tailored(self, config: Config) -> Adapts:
        """The environment as it proposes with these parameters: edits of the names in `config.adaptation.edits`, or of
        its own choice where there are none.
        """
        ...


@runtime_checkable
class AsksModel(Protocol):
    """A language model may propose edits."""

    def proposal_prompt(self) -> ProposalPrompt: ...


@runtime_checkable
class Proves(Protocol):
    """A proof that `Adapts.apply` cannot give, because it takes long."""

    def proof(self, config: Config, ask: Ask | None) -> Proof:
        """`ask` is there where a language model proposes. Raises UserError where a proof is not to be had here."""
        ...


INSTEAD = {  # what to do about a stage that needs an ability which the environment does not have
    Judged: "set judge.enabled: false",
    Imports: "set tasks.source: builtin",
    Exports: "leave out --export",
    Demonstrates: "set warm_start.enabled: false",
    Labels: "set warm_start.enabled: false",
    Adapts: "set adaptation.enabled: false",
    AsksModel: "set adaptation.proposer: rules",
}
Ability = TypeVar("Ability")


def need(env: Env, ability: type[Ability], stage: str, *, instead: str = "choose another environment") -> Ability:
    """`env` as what has that ability. Raises UserError that names the protocol and what to do without it, which
    `instead` says of an ability of a package.
    """
    if isinstance(env, ability):
        return env
    raise UserError(
        f"env.name: {env.name} does not implement {ability.__name__} ({ability.__module__}), which {stage} needs; "
        f"{INSTEAD.get(ability, instead)}"
    )


Answer = TypeVar("Answer")
AHEAD = 2  # calls for each that may be under way: who is done need not wait for the one that is read next


@runtime_checkable
class Together(Protocol):
    """`demonstrate`, `label` and `label_seen` may be called from several threads."""

    def at_once(self, config: Config) -> int:
        """From how many it is of use: 1 or more."""
        ...


def at_once(env: object, config: Config) -> int:
    return env.at_once(config) if isinstance(env, Together) else 1


def begun(calls: Iterable[Callable[[], Answer]], count: int) -> Iterator[Callable[[], Answer]]:
    """For each call, in order, one that returns what it gives or raises what it raises. With a `count` above 1 so many
    are made at a time, a few of them before somebody asks; else each is made when its turn comes.
    """
    if count == 1:
        yield from calls
        return
    waiting: deque[Future[Answer]] = deque()
    with ThreadPoolExecutor(count) as pool:
        try:
            for call in calls:
                waiting.append(pool.submit(call))
                if len(waiting) == AHEAD * count:
                    yield waiting.popleft().result
            while waiting:
                yield waiting.popleft().result
        finally:
            for left in waiting:
                left.cancel()
