"""Every parameter, its type and its default (the paper's value if the paper has one).

One dataclass per section of `params.yaml`. `schemas/params.schema.json` is generated from these classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rla.config.schema import (
    LARGEST,
    LONGEST_WAIT,
    MOST_PROCESSES,
    WITHOUT_EFFECT,
    fraction,
    from_one,
    from_zero,
    heat,
    ranged,
    recorded_as,
    without_effect,
)
from rla.config.training import JudgeTrainConfig, TrainConfig, WarmStartConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeServerConfig:
    """A chat server that judges in place of the reward model if `url` and `model` are set. Its votes train no model."""

    url: str = without_effect("")  # base URL, such as https://host/v1; set it to have another model judge
    model: str = ""  # the name by which the server serves the judge; set it with url
    # name of the limit of a reply; max_completion_tokens for newer models of OpenAI
    length_key: Literal["max_tokens", "max_completion_tokens"] = without_effect("max_tokens")
    seeded: bool = True  # false for servers that refuse requests with a seed
    connections: int = without_effect(32, least=1, most=65536)  # requests at once; lower it if the server answers 429


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeConfig:
    """How the reward model is asked: `votes` is m, the judgements of each step."""

    enabled: bool = True  # false: no votes, outcomes alone are credited. Turn it off to compare with plain GRPO
    # a chat server that judges in place of the reward model
    server: JudgeServerConfig = field(default_factory=JudgeServerConfig)
    # training: judge tasks that train a model or that the critic reads, and a tenth of the others. Choose it when
    # judging is the slowest stage
    tasks: Literal["all", "training"] = "all"
    # published for chat models that follow a rubric, plain for small ones
    prompt: Literal["plain", "published"] = "plain"
    # m, judgements of each step; more of them average out a noisy judge and cost as much more time
    votes: int = from_one(3)
    # admissible: only one of the known replies; for small models, needs prompt: plain
    decoding: Literal["free", "admissible"] = "free"
    # observations before the action whose pictures a prompt shows; raise it if one picture does not tell the state
    images: int = ranged(1, least=1, most=1024)
    temperature: float = heat(0.8)  # of sampling; lower it if votes of a step differ by chance
    max_tokens: int = from_one(1024)  # of a judgement; raise it if the guard unreadable-votes says that replies are cut

    @property
    def trains(self) -> bool:
        """Whether the judge is the run's reward model. If a chat server judges, the reward model stays as it is."""
        return not (self.server.url or self.server.model)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapingConfig:
    """An episode's score: outcome, bonus for tool rounds, penalty for length. Accuracies are computed from the outcome.

    The defaults leave the outcome as it is, +1 for a win and -1 otherwise; `rla.credit.advantages` computes the score.
    """

    # reward: the reward that the environment counted, if it counts any; for partial credit such as passed tests
    outcome: Literal["sign", "reward"] = "sign"
    # wrong: negative scores gain by every tool round; both: won episodes, too; published: its code, in which nothing
    # gains. Use it if a policy stops calling tools
    tool_bonus: Literal["none", "wrong", "both", "published"] = "none"
    # tokens of a reply with its tool results: the penalty is 0 up to the first number and a whole point from the second
    # on; set it if replies grow to the limit. [0, 0]: none
    overlong: tuple[int, int] = ranged((0, 0), least=0, most=LARGEST)
    # the standard deviation that scores are divided by; sample (with n - 1, plus 1e-6) to repeat the published run
    spread: Literal["population", "sample"] = "population"

    @property
    def of_episodes(self) -> bool:
        """Whether more than its outcome decides an episode's score."""
        return self.outcome == "reward" or self.tool_bonus != "none" or self.overlong[1] > 0


MOST_CONTEXT = 1 << 24  # tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvConfig:
    """The environment that the policy acts in. `own`: the environment's own parameters, an instance of its `Params`."""

    name: str | None = None  # which environment; `rla envs` lists the installed ones
    # of an episode, which is lost after that; as many as a good policy needs, with some to spare
    max_steps: int = from_one(40)
    # first words of commands that are not offered; leave out those that only cost steps
    omit_commands: tuple[str, ...] = ()
    # an episode that reaches this reward is won; set it for environments that count rewards on another scale
    reward_threshold: float = ranged(1.0, least=-1e9, most=1e9)
    own: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksConfig:
    """Which tasks exist. The environment makes them, or reads them from the data at `path`.

    The guide of an environment says what its scenes, kinds and sizes are.
    """

    # a data set: a file, a folder, or another place that the environment can read. null: built-in tasks
    path: str | None = None
    train_split: str = "train"  # name of the split that trains; as the data set calls it
    # names of the held-out splits, the main one first; as the data set calls them
    test_splits: tuple[str, ...] = without_effect(("test",))
    # of a built-in scene; larger ones are harder and have longer texts
    size: Literal["tiny", "small", "medium", "full"] = "tiny"
    kinds: tuple[str, ...] = ()  # kinds of built-in tasks to draw; empty: all. Name some to study them alone
    # kinds of held-out tasks; empty: as `kinds`. Set it to test on kinds that do not train
    test_kinds: tuple[str, ...] = ()
    train_scenes: int = from_one(64)  # built-in scenes that train; more of them generalise better
    test_scenes: int = from_one(32)  # held-out scenes; more of them narrow the intervals of an evaluation
    tasks_per_scene: int = from_one(2)  # built-in tasks in each scene; lower it for more varied scenes
    # at most this many tasks of `path`; for a first try on a large data set
    limit: int | None = ranged(None, least=1, most=LARGEST)

    def held_out(self, split: str) -> bool:
        """Whether a split is for evaluation alone."""
        return split in self.test_splits

    def kinds_of(self, split: str) -> tuple[str, ...]:
        """The kinds of tasks that are asked for in a split; empty: all."""
        return (self.test_kinds if self.held_out(split) else ()) or self.kinds

    def scenes(self, split: str) -> int:
        return self.test_scenes if self.held_out(split) else self.train_scenes

    def count(self, split: str) -> int:
        return self.scenes(split) * self.tasks_per_scene


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The start of the policy and of the reward model: a Hugging Face folder or id, or `init` for a small new one."""

    policy: str = "init"  # folder or hub id to start from; init: a small new model
    reward: str = ""  # folder or hub id of the reward model; empty: as `policy`. Set it if a larger judge is affordable
    # of a new model, as all that follow; raise it if the loss of the warm start stays high
    hidden_size: int = ranged(96, least=1, most=65536)
    layers: int = ranged(3, least=1, most=1024)  # transformer blocks; as for hidden_size
    # attention heads, half as many of keys and values; hidden_size must be a multiple of 2 * heads
    heads: int = ranged(4, least=1, most=1024)
    # of the feed-forward layers; two to four times hidden_size
    intermediate_size: int = ranged(256, least=1, most=1048576)
    context: int = ranged(1024, least=2, most=MOST_CONTEXT)  # tokens that it can hold; at least generator.context
    # qwen3, or one of an installed package; set it if a new model is to see pictures (`docs/guide/pictures.md`)
    architecture: str = "qwen3"
    own: Any = None  # parameters of an architecture that a package brings


LoraRank = Literal[1, 8, 16, 32, 64, 128, 256, 320, 512]  # vLLM's MaxLoRARanks


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorConfig:
    """The inference engine of rollout, judging and evaluation."""

    # transformers, vllm, scripted, or an engine of an installed package (`docs/guide/engines.md`); vllm for
    # models of a billion parameters and more
    backend: str = recorded_as("transformers", "engine_name")
    own: Any = field(default=None, metadata=WITHOUT_EFFECT)  # parameters of an engine that a package brings
    # generated at once; lower it if memory runs out, raise it if the GPU is not busy
    max_sequences: int = ranged(64, least=1, most=65536)
    # tokens of prompt and reply together; raise it if the guard cut-episodes speaks
    context: int = ranged(1024, least=2, most=MOST_CONTEXT)
    dtype: Literal["float32", "bfloat16"] = "float32"  # of computation; bfloat16 on a GPU
    # GPUs that hold one model together (vLLM); raise it if the model does not fit one GPU
    tensor_parallel: int = ranged(1, least=1, most=MOST_PROCESSES)
    # worker processes of a stage; auto: one for each GPU
    data_parallel: int | Literal["auto"] = without_effect(1, least=1, most=MOST_PROCESSES)
    # adapter: load the base once and adapters over it (vLLM); for LoRA runs whose engines stay loaded
    lora: Literal["merged", "adapter"] = "merged"
    # the largest rank that `lora: adapter` serves; at least the ranks that train
    max_lora_rank: LoraRank = without_effect(64)  # noqa: RUF009
    # share of a GPU that vLLM may take; lower it if something else needs the GPU
    gpu_memory: float = ranged(0.85, above=0.0, most=1.0)

    @property
    def engine_name(self) -> str:
        """The backend that computes. Results do not depend on the process in which an engine runs."""
        return str(getattr(self.own, "engine", self.backend))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """How the policy is asked and read. `text`: the reply is the action. `index`: it ends with the number of a command.

    `tagged`: it reasons first, and the action stands between <action> and </action>.
    """

    # text for small models, tagged for chat models that reason, index for long lists of commands
    reply: Literal["text", "index", "tagged"] = "text"
    # window: a new prompt for each step; choose it if episodes do not fit generator.context
    history: Literal["full", "window"] = "full"
    repeat_task: bool = False  # end every observation with the task; for small models that lose sight of it
    # admissible: only tokens of an offered command; for small models, needs reply: text
    decoding: Literal["free", "admissible"] = "free"
    # `history: window`: observations whose pictures a prompt shows, the current one included; fewer cost less context
    images: int = ranged(3, least=1, most=1024)
    # of sampling for training; lower it if most replies are unusable, raise it if all episodes of a task are alike
    temperature: float = heat(0.8)
    max_tokens: int = from_one(512)  # of a reply; raise it if the guard cut-episodes says that replies are cut
    # tokens of all replies and the answers to them, the last reply getting the rest; for tool use with one long
    # answer. 0: no such bound, and an episode ends when a reply of max_tokens does not fit
    response_tokens: int = from_zero(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutConfig:
    """How many episodes an iteration plays: `rollouts_per_task` is k."""

    tasks_per_iteration: int = from_one(16)  # active tasks of an iteration; more of them make updates less noisy
    rollouts_per_task: int = from_one(8)  # k, episodes of each task; raise it if too few groups have both outcomes
    # mixed: play more tasks, up to three times as many, until enough were both won and lost (DAPO)
    fill: Literal["tasks", "mixed"] = "tasks"
    # slots of the pool that the run plays, drawn by its seed; few are seen often, and adapt. 0: all
    slots: int = from_zero(0)
    # episodes at once; a few times generator.max_sequences, less if environments need much memory
    concurrency: int = from_one(128)
    # within: tasks_per_iteration counts pending tasks, too; to compare with a run that does not adapt
    pending: Literal["beside", "within"] = "beside"
    # the stage fails if a larger share of rows ended by an error; raise it for environments that crash now and then
    max_failed_share: float = without_effect(0.1, least=0.0, most=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditConfig:
    """From outcomes and judgements to advantages. `step_weight` is the paper's lambda."""

    # how rewards become advantages (`docs/guide/credit.md`); outcome is GRPO, anchor GiGPO
    estimator: Literal["integrated", "outcome", "step", "anchor"] = "integrated"
    # lambda, the weight of the judgements added to the outcome; lower it if the judge is often wrong
    step_weight: float = ranged(1.0, least=0.0, most=1e6)
    # steps that a reward is compared with: task for small judges, place if the environment names places
    normalise: Literal["step", "task", "place"] = "step"
    # baseline: votes pay nothing, the one before a step reduces noise; for a judge that a policy could learn to please
    judged: Literal["step", "baseline"] = "step"
    # tasks train the policy only if low < accuracy < high; raise low to leave out tasks that are hardly ever won
    policy_band: tuple[float, float] = ranged((0.0, 1.0), least=-1.0, most=2.0)
    # judgements that a reward is compared with; task if most votes of a step agree
    reward_model_normalise: Literal["step", "task", "none"] = "step"
    # tasks train the reward model only if low <= accuracy <= high; widen it if too few tasks do
    reward_model_band: tuple[float, float] = ranged((0.2, 0.8), least=-1.0, most=2.0)
    # weigh steps of won and of lost episodes alike; if most episodes have the same outcome
    reward_model_balanced: bool = False
    shaping: ShapingConfig = field(default_factory=ShapingConfig)  # changes of an episode's score


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposerConfig:
    """The language model of `adaptation.proposer: llm`, which also writes the critiques. Its tokens do not train."""

    model: str = ""  # a model folder or hub id; empty: the policy that played. Name a larger one if few edits are valid
    # base URL of a server with that model (as of `generator.backend: server`); for one that does not fit on the GPU
    server: str = without_effect("")
    context: int = ranged(0, least=0, most=MOST_CONTEXT)  # tokens that it can hold; 0: generator.context
    temperature: float = heat(1.0)  # of critiques and edits; lower it if many edits cannot be read
    max_tokens: int = from_one(512)  # of an edit or a critique, thoughts included; thousands for models that think


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptationConfig:
    """Which tasks change, and when a changed task is accepted (bounds of the paper's equation, both strict)."""

    enabled: bool = True  # false: no task changes; for environments without edits, or to compare
    # interval: compare task and parent under one policy, with confidence; if accuracies of few episodes mislead
    acceptance: Literal["paper", "interval"] = "paper"
    # llm: a language model writes the edits; for environments without rules of their own
    proposer: Literal["rules", "llm"] = "rules"
    llm: ProposerConfig = field(default_factory=ProposerConfig)  # the language model of `proposer: llm`
    alpha_low: float = fraction(0.2)  # a task that is won less often is too hard; the paper's bound
    alpha_high: float = fraction(0.8)  # a task that is won more often is too easy; the paper's bound
    edits: tuple[str, ...] = ()  # names of the allowed edits; empty: the environment chooses
    # tasks that may be pending at once; lower it if pending tasks take too many episodes
    max_tasks: int = from_zero(16)
    proposals_per_task: int = from_one(8)  # edits that are asked for; raise it if few are valid
    # edits from its root after which a task is not edited any more; raise it for long runs
    max_depth: int = from_zero(4)
    cooldown: int = from_zero(1)  # iterations that a slot rests after a verdict or a return; 0 as in the published code
    # measurements outside the band after which a changed task gives way to its root; 0: never, as in the published code
    return_after: int = from_zero(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """Evaluation on the held-out split."""

    tasks: int = from_zero(0)  # held-out tasks that are played; 0: all. Fewer for a quick look
    # episodes of each; more of them narrow the intervals, and k of pass@k is at most this
    rollouts_per_task: int = from_one(3)
    # of sampling; 0: the likeliest token, for a single deterministic answer
    temperature: float = heat(0.8, or_zero=True)
    max_steps: int = from_one(40)  # of an episode; usually env.max_steps
    # of pass@k and maj@k; published: the bootstrap of the published evaluation (`docs/guide/evaluation.md`)
    estimator: Literal["unbiased", "published"] = without_effect("unbiased")
    # share of the probability whose likeliest tokens are sampled; only to repeat a published evaluation
    top_p: float = ranged(1.0, above=0.0, most=1.0)
    probe_tasks: int = from_zero(0)  # held-out tasks on whose labelled steps every reward model is measured; 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """In which processes environments step. No output depends on it: it may change within a run."""

    # auto: processes of their own for slow environments; never to debug an environment in the stage's process
    mode: Literal["auto", "always", "never"] = "auto"
    backend: str = "local"  # local, or a launcher of an installed package that hosts environments elsewhere
    own: Any = None  # parameters of that launcher
    # environments alive at once; 0: eight for each core. Lower it if memory runs out
    workers: int = ranged(0, least=0, most=MOST_PROCESSES)
    # seconds after which a reset or a step is repeated in a new process; raise it for slow environments
    step_deadline_s: float = ranged(60.0, above=0.0, most=LONGEST_WAIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsConfig:
    """Which checkpoints stay on the disk (`rla prune`). No output depends on it: it may change within a run."""

    keep: int = from_zero(0)  # last finished iterations whose checkpoints stay whole; 0: all. Set 2 for large models
    export_every: int = from_zero(0)  # of every n-th iteration `model/` stays, to evaluate or to publish; 0: of none


GuardName = Literal[
    "no-action",
    "cut-episodes",
    "unreadable-votes",
    "no-mixed-group",
    "one-sided-judge",
    "useless-judge",
    "entropy-collapse",
    "exploding-update",
    "sampler-gap",
    "refused-proposals",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardsConfig:
    """Warnings that may stop a run (`docs/guide/warnings.md`). No output depends on it: it may change within a run."""

    # warnings that end their stage with exit code 2 once its outputs are whole; `first-replies` ends it at once if none
    # of its first replies can be read. Add those that a long run should not survive
    stop: tuple[Literal["first-replies", GuardName], ...] = ("first-replies",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """On which processes stages run. Outputs depend on it by rounding alone: it may change within a run."""

    # CPU threads of a stage; 0: as many as the process may use. Lower it if other work shares the machine. Engines on
    # Ray take the CPUs that Ray gives them
    threads: int = ranged(0, least=0, most=MOST_PROCESSES)
    # a configuration of `accelerate launch` or a launcher of an installed package; for more than one GPU
    training: str | None = None
    own: Any = None  # parameters of that launcher
    # FSDP2: groups of processes that each hold the whole model (HSDP); the number of nodes if the network between them
    # is slow
    replicas: int = ranged(1, least=1, most=MOST_PROCESSES)

    @property
    def configuration(self) -> str | None:
        """The configuration of accelerate that launches training; None if nothing launches it."""
        return self.training if self.own is None else str(self.own.configuration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All sections. Stages depend on the sections that they read and on nothing else."""

    name: str = without_effect("")  # of the run: its folder below runs/; empty: as the params file
    # of the run: tasks, new models, episodes and training follow from it; change it to repeat an experiment
    seed: int = ranged(0, least=0, most=2**63 - 1)
    env: EnvConfig = field(default_factory=EnvConfig)
    tasks: TasksConfig = field(default_factory=TasksConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    credit: CreditConfig = field(default_factory=CreditConfig)
    train_policy: TrainConfig = field(default_factory=TrainConfig)
    train_rm: JudgeTrainConfig = field(default_factory=JudgeTrainConfig)
    adaptation: AdaptationConfig = field(default_factory=AdaptationConfig)
    warm_start: WarmStartConfig = field(default_factory=WarmStartConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    checkpoints: CheckpointsConfig = field(default_factory=CheckpointsConfig, metadata=WITHOUT_EFFECT)
    guards: GuardsConfig = field(default_factory=GuardsConfig, metadata=WITHOUT_EFFECT)
    launch: LaunchConfig = field(default_factory=LaunchConfig, metadata=WITHOUT_EFFECT)
    pool: PoolConfig = field(default_factory=PoolConfig, metadata=WITHOUT_EFFECT)

    @property
    def teaches_pretrained(self) -> bool:
        """Whether the run begins with a warm start of a policy that exists."""
        return bool(self.warm_start.enabled) and self.model.policy != "init"

    def taught_by_adapter(self, option: str) -> TrainConfig | None:
        """The section that trains the policy, or the reward model (`rm`), if a warm start teaches its adapter; None if
        all weights learn, as in a new model, because an adapter over random weights learns nothing.
        """
        policy = option == "policy"
        train: TrainConfig = self.train_policy if policy else self.train_rm
        source = self.model.policy if policy or self.warm_start.reward_from_policy else self.model.reward
        return train if train.lora.rank and source != "init" else None
