"""Every parameter, its type and its default (the paper's value where the paper has one).

One dataclass per section of `params.yaml`. `schemas/params.schema.json` is generated from these classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rla.config.bounds import (
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
class VisionConfig:
    """The vision tower of a small new model; `kind: none`: it reads texts alone."""

    kind: Literal["none", "qwen2.5-vl", "qwen3-vl"] = "none"  # of transformers' architectures
    hidden_size: int = ranged(64, least=8, most=65536)  # of the tower
    layers: int = ranged(4, least=1, most=1024)  # blocks of the tower
    heads: int = ranged(4, least=1, most=1024)  # attention heads of the tower
    patch_size: int = ranged(14, least=2, most=256)  # pixels; a token stands for 2 x 2 patches
    most_tokens: int = ranged(256, least=1, most=1 << 16)  # of a picture: larger ones are scaled down


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeServerConfig:
    """The chat server of `judge.backend: server`. Of its replies only text is known, so they train no model."""

    url: str = without_effect("")  # base URL, such as https://host/v1
    model: str = ""  # the name by which it serves the judge
    key_variable: str = without_effect("RLA_JUDGE_API_KEY")  # the environment variable that holds the API key
    # what the server calls the longest reply in tokens
    length_key: Literal["max_tokens", "max_completion_tokens"] = without_effect("max_tokens")
    seeded: bool = True  # whether requests carry a seed, which some servers refuse
    connections: int = without_effect(32, least=1, most=65536)  # requests at once
    timeout: float = without_effect(120.0, above=0.0, most=LONGEST_WAIT)  # seconds for one answer
    # seconds that a request which fails is tried again
    patience: float = without_effect(300.0, least=0.0, most=LONGEST_WAIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeConfig:
    """How the reward model is asked: `votes` is m, the judgements of each step."""

    enabled: bool = True  # false: no votes, outcomes alone are credited
    backend: Literal["generator", "server"] = "generator"  # server: any chat server judges, and does not train
    server: JudgeServerConfig = field(default_factory=JudgeServerConfig)
    tasks: Literal["all", "training"] = "all"  # training: those that train a model, and what the critic reads
    sampled: float = fraction(0.1)  # `training`: share of the other tasks that are judged all the same, for the metrics
    prompt: Literal["plain", "published"] = "plain"  # for small models, or for chat models that follow a rubric
    votes: int = from_one(3)  # m, judgements of each step
    decoding: Literal["free", "admissible"] = "free"  # admissible: one of its known replies; needs prompt: plain
    # observations before the action whose pictures a prompt shows, beside those that followed it
    images: int = ranged(1, least=1, most=1024)
    temperature: float = heat(0.8)  # of sampling
    max_tokens: int = from_one(1024)  # of a judgement

    @property
    def trains(self) -> bool:
        """Whether the judge is the run's reward model. A chat server is not, and the reward model stays as it is."""
        return self.backend == "generator"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapingConfig:
    """An episode's score: outcome, bonus for tool rounds, penalty for length. Accuracies are those of the outcome.

    The defaults leave the outcome as it is, +1 for a win and -1 otherwise; `rla.credit.shaping` computes the score.
    """

    # reward: what the environment counted, where it counted anything; elsewhere the sign, +1 or -1
    outcome: Literal["sign", "reward"] = "sign"
    # wrong: negative scores gain by every tool round; both: won episodes, too; published: its code, where none gain
    tool_bonus: Literal["none", "wrong", "both", "published"] = "none"
    tool_bonus_per_call: float = ranged(0.1, least=0.0, most=1e6)  # of a tool round
    tool_bonus_most: float = ranged(-0.6, least=-1e6, most=0.0)  # what a negative score can reach by it
    overlong_max: int = from_zero(0)  # tokens of a reply with its tool results that cost the whole penalty; 0: none
    overlong_buffer: int = from_zero(0)  # tokens below overlong_max over which the penalty grows
    overlong_factor: float = ranged(1.0, least=0.0, most=1e6)  # the whole penalty
    # the standard deviation that scores are divided by; sample: with n - 1, and 1e-6 is added to it
    spread: Literal["population", "sample"] = "population"

    @property
    def of_episodes(self) -> bool:
        """Whether more than its outcome decides an episode's score."""
        return self.outcome == "reward" or self.tool_bonus != "none" or self.overlong_max > 0


MOST_CONTEXT = 1 << 24  # tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvConfig:
    """The environment that the policy acts in. `own`: the environment's own parameters, an instance of its `Params`."""

    name: str | None = None  # `rla envs` lists those that are installed
    max_steps: int = from_one(40)  # of an episode; one that is not won by then is lost
    omit_commands: tuple[str, ...] = ()  # first words of commands that are not offered to the policy
    # of environments that count rewards: an episode that reaches it is won
    reward_threshold: float = ranged(1.0, least=-1e9, most=1e9)
    own: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurationConfig:
    """Shares that a curated pool (`rla make-tasks --curate`) has of tasks by their pass rate. They sum to 1, or all are
    0: then every task between the ends stays.
    """

    easy: float = without_effect(0.0, least=0.0, most=1.0)  # pass rates from 0.75 on, below 1
    medium: float = without_effect(0.0, least=0.0, most=1.0)  # above 0.25 and below 0.75
    hard: float = without_effect(0.0, least=0.0, most=1.0)  # up to 0.25, above 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksConfig:
    """Which tasks exist. `builtin`: those that the environment makes itself; `files`: those of the data at `path`.

    What a scene, a kind and a size are is the environment's to say (its guide does).
    """

    source: Literal["builtin", "files"] = "builtin"  # who makes them
    path: str | None = None  # a file, a folder, or what else the environment can read
    train_split: str = "train"  # name of the split that trains
    test_split: str = "test"  # name of the split that is held out
    test_splits: tuple[str, ...] = without_effect(())  # several, in place of `test_split`; the first is the main one
    size: Literal["tiny", "small", "medium", "full"] = "tiny"  # of a scene
    kinds: tuple[str, ...] = ()  # empty: all
    test_kinds: tuple[str, ...] = ()  # of held-out splits; empty: those of `kinds`
    train_scenes: int = from_one(64)  # scenes that are asked for
    test_scenes: int = from_one(32)  # held-out scenes that are asked for
    tasks_per_scene: int = from_one(2)  # tasks that are asked for in each
    limit: int | None = ranged(None, least=1, most=LARGEST)  # at most this many tasks of `files`
    curation: CurationConfig = field(default_factory=CurationConfig)

    @property
    def held_out_splits(self) -> tuple[str, ...]:
        """The splits that are for evaluation alone, the main one first."""
        return self.test_splits or (self.test_split,)

    def held_out(self, split: str) -> bool:
        """Whether a split is for evaluation alone."""
        return split in self.held_out_splits

    def kinds_of(self, split: str) -> tuple[str, ...]:
        """The kinds of tasks that are asked for in a split; empty: all."""
        return (self.test_kinds if self.held_out(split) else ()) or self.kinds

    def scenes(self, split: str) -> int:
        """How many scenes of a split are asked for."""
        return self.test_scenes if self.held_out(split) else self.train_scenes

    def count(self, split: str) -> int:
        """How many tasks of a split are asked for."""
        return self.scenes(split) * self.tasks_per_scene


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Where the policy and the reward model start: a Hugging Face folder or id, or `init` for a small new one."""

    policy: str = "init"  # where the policy starts
    reward: str = ""  # where the reward model starts; empty: where the policy does
    hidden_size: int = ranged(96, least=1, most=65536)  # of a new model, as all that follow
    layers: int = ranged(3, least=1, most=1024)  # transformer blocks
    heads: int = ranged(4, least=1, most=1024)  # attention heads
    kv_heads: int = ranged(2, least=1, most=1024)  # of keys and values
    intermediate_size: int = ranged(256, least=1, most=1048576)  # of the feed-forward layers
    context: int = ranged(1024, least=2, most=MOST_CONTEXT)  # tokens that it can hold
    vision: VisionConfig = field(default_factory=VisionConfig)  # whether it sees pictures


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorConfig:
    """The inference engine of rollout, judging and evaluation."""

    # `docs/guide/engines.md`
    # transformers, vllm, server, scripted, or what an installed package brings
    backend: str = recorded_as("transformers", "engine_name")
    own: Any = field(default=None, metadata=WITHOUT_EFFECT)  # of an engine that a package brings
    max_sequences: int = ranged(64, least=1, most=65536)  # sequences that are generated at once
    context: int = ranged(1024, least=2, most=MOST_CONTEXT)  # tokens of prompt and reply together
    dtype: Literal["float32", "bfloat16"] = "float32"  # what it computes in
    threads: int = ranged(0, least=0, most=MOST_PROCESSES)  # CPU threads; 0: as many as the process may use
    tensor_parallel: int = ranged(1, least=1, most=MOST_PROCESSES)  # GPUs that hold one model together (vLLM)
    # worker processes of a stage; auto: all GPUs have one
    data_parallel: int | Literal["auto"] = without_effect(1, least=1, most=MOST_PROCESSES)
    lora: Literal["merged", "adapter"] = "merged"  # of a LoRA checkpoint: as one model, or over the run's base (vLLM)
    max_lora_rank: int = without_effect(64, least=1)  # `adapter`: the largest rank that can be asked for
    max_loras: int = without_effect(2, least=1)  # `adapter`: different ones that a batch may hold
    gpu_memory: float = ranged(0.85, above=0.0, most=1.0)  # share of a GPU that vLLM may take
    enforce_eager: bool = False  # vLLM: no compilation, which starts sooner and runs slower
    server: str = without_effect("")  # `server`: base URL, such as http://localhost:8000/v1
    server_model: str = without_effect("")  # the served name; empty: the one that serves this stage's checkpoint
    server_connections: int = without_effect(256, least=1, most=65536)  # requests at once
    # seconds without an answer until a request is made again
    server_timeout: float = without_effect(600.0, above=0.0, most=LONGEST_WAIT)
    # seconds that a request which fails is tried again
    server_patience: float = without_effect(300.0, least=0.0, most=LONGEST_WAIT)

    @property
    def engine_name(self) -> str:
        """The backend that computes: an engine elsewhere gives what it would give in the stage's process."""
        return str(getattr(self.own, "engine", self.backend))


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """How the policy is asked and read. `text`: the reply is the action. `index`: it ends with the number of a command.

    `tagged`: it reasons first, and the action stands between <action> and </action>.
    """

    reply: Literal["text", "index", "tagged"] = "text"  # what the policy writes
    history: Literal["full", "window"] = "full"  # one growing dialogue, or a new prompt for each step
    repeat_task: bool = False  # every observation after the first ends with the task
    decoding: Literal["free", "admissible"] = "free"  # admissible: only tokens of a command; needs reply: text
    # `history: window`: observations whose pictures a prompt shows, that of now included; all earlier actions are text
    images: int = ranged(3, least=1, most=1024)
    temperature: float = heat(0.8)  # of sampling, for training
    max_tokens: int = from_one(512)  # of a reply
    # an episode ends where a whole reply of max_tokens does not fit any more, or the reply has what room is left
    room: Literal["whole", "left"] = "whole"
    response_tokens: int = from_zero(0)  # of all replies and answers to them after the first prompt; 0: no such bound


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutConfig:
    """How many episodes an iteration plays: `rollouts_per_task` is k."""

    tasks_per_iteration: int = from_one(16)  # tasks of the pool that an iteration plays
    rollouts_per_task: int = from_one(8)  # k, episodes of each
    sampling: Literal["uniform", "learnability"] = "uniform"  # how tasks are drawn; learnability: by a (1 - a)
    # `learnability`: share of the tasks that is drawn among those not seen for longest
    revisit: float = ranged(0.25, above=0.0, most=1.0)
    fill: Literal["tasks", "mixed"] = "tasks"  # mixed: more tasks, until as many were both won and lost
    # `mixed`: active tasks that an iteration plays at most; 0: three times tasks_per_iteration
    most_tasks: int = from_zero(0)
    # slots of the pool that the run plays, drawn by its seed; 0: all. Few are seen often, and adapt
    slots: int = from_zero(0)
    concurrency: int = from_one(128)  # episodes at once
    pending: Literal["beside", "within"] = "beside"  # whether tasks_per_iteration counts the pending tasks
    # more rows than this share ended by an error: the stage fails
    max_failed_share: float = without_effect(0.1, least=0.0, most=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditConfig:
    """From outcomes and judgements to advantages. `step_weight` is the paper's lambda."""

    estimator: Literal["integrated", "outcome", "step", "return", "anchor"] = "integrated"  # `docs/guide/credit.md`
    step_weight: float = ranged(1.0, least=0.0, most=1e6)  # lambda, the weight of the judgements beside the outcome
    normalise: Literal["step", "task", "place"] = "step"  # what a step's reward is compared over
    # the share of lambda that the votes have earned: all; what they say of outcomes; what they say of choices
    reliability: Literal["none", "pooled", "place"] = "none"
    votes: Literal["all", "unanimous"] = "all"  # unanimous: a step whose votes differ counts as one without votes
    # what the policy is paid for a step: the judgement, or by how much it differs from that of the step before; of a
    # baseline nothing: the judgement of the step before is taken off the outcome
    judged: Literal["step", "change", "baseline"] = "step"
    discount: float = fraction(0.0)  # `return`: of later judgements, per step; 0: the step's own alone
    # `return`, `anchor`: of the outcome, per step that was still to go; GiGPO has 0.95
    outcome_discount: float = fraction(1.0)
    # `anchor`: of the comparison in the same place, beside the episode's
    anchor_weight: float = ranged(1.0, least=0.0, most=1e6)
    # tasks train the policy only where low < accuracy < high: outcomes must differ
    policy_low: float = ranged(0.0, least=-1.0, most=2.0)
    policy_high: float = ranged(1.0, least=-1.0, most=2.0)  # upper end of that band
    reward_model_normalise: Literal["step", "task", "none"] = "step"  # what a judgement's reward is compared over
    # what a judgement has to agree with: the episode's outcome, or that beside the outcomes of others in the same place
    reward_model_outcome: Literal["episode", "place"] = "episode"
    # beyond the paper: the share of steps whose judgements have to agree with the environment's own label instead
    reward_model_truth: float = fraction(0.0)
    # tasks whose accuracy lies outside [low, high] do not train the reward model
    reward_model_low: float = ranged(0.2, least=-1.0, most=2.0)
    reward_model_high: float = ranged(0.8, least=-1.0, most=2.0)  # upper end of that band
    reward_model_balanced: bool = False  # steps of won and of lost episodes weigh the same in its training
    shaping: ShapingConfig = field(default_factory=ShapingConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposerConfig:
    """The language model of `adaptation.proposer: llm`, which also writes the critiques. Its tokens do not train."""

    model: str = ""  # a model folder or hub id; empty: the policy that played
    server: str = without_effect("")  # base URL of a server of its own; empty: the engine that `generator` names
    server_model: str = without_effect("")  # the name by which that server serves it
    context: int = ranged(0, least=0, most=MOST_CONTEXT)  # tokens that it can hold; 0: generator.context
    temperature: float = heat(1.0)  # of critiques and edits
    max_tokens: int = from_one(512)  # of an edit, thoughts included
    critique_tokens: int = from_one(256)  # of a critique, thoughts included
    episodes: int = from_one(8)  # episodes of a task that the critic reads


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptationConfig:
    """Which tasks change, and when a changed task is accepted (bounds of the paper's equation, both strict)."""

    enabled: bool = True  # false: no task changes
    acceptance: Literal["paper", "interval"] = "paper"  # interval: parent and child under one policy, with confidence
    # `interval`: of the two-sided interval that must exclude "no difference"
    confidence: float = ranged(0.9, above=0.0, below=1.0)
    proposer: Literal["rules", "llm"] = "rules"  # who writes the edits
    llm: ProposerConfig = field(default_factory=ProposerConfig)
    alpha_low: float = fraction(0.2)  # a task that is won less often is too hard
    alpha_high: float = fraction(0.8)  # a task that is won more often is too easy
    edits: tuple[str, ...] = ()  # names that an edit may have; empty: those that the environment chooses
    # measurements in a row that must say so before a task is asked to change
    ask_after: int = from_one(1)
    max_tasks: int = from_zero(16)  # tasks that may be pending at once
    proposals_per_task: int = from_one(8)  # edits that are asked for
    max_depth: int = from_zero(4)  # edits from its root after which a task is not edited any more
    cooldown: int = from_zero(1)  # iterations that a slot rests after a verdict or a return
    return_after: int = from_zero(2)  # measurements outside the band after which a task gives way to its root; 0: never
    # that the environment's expert plays of an accepted task, its parent, its root; 0: none
    expert_episodes: int = from_zero(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """Evaluation on the held-out split."""

    tasks: int = from_zero(0)  # 0: all
    rollouts_per_task: int = from_one(3)  # episodes of each
    temperature: float = heat(0.8, or_zero=True)  # of sampling; 0: the likeliest token
    max_steps: int = from_one(40)  # of an episode
    # of pass@k and maj@k; published: the bootstrap of the published evaluation (`docs/guide/evaluation.md`)
    estimator: Literal["unbiased", "published"] = without_effect("unbiased")
    # share of the probability whose likeliest tokens are sampled; 1: all. Training always samples from all
    top_p: float = ranged(1.0, above=0.0, most=1.0)
    probe_tasks: int = from_zero(0)  # on whose labelled steps every reward model is measured; 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """In which processes environments step. No output depends on it: it may change within a run."""

    mode: Literal["auto", "always", "never"] = "auto"  # auto: processes of their own for slow environments
    backend: str = "local"  # on the stage's machine, or where a launcher of an installed package has them
    own: Any = None  # parameters of that launcher
    # environments alive at once; 0: eight per core, for most of them wait for a reply
    workers: int = ranged(0, least=0, most=MOST_PROCESSES)
    # a reset or a step that takes longer is played again in a new process
    step_deadline_s: float = ranged(60.0, above=0.0, most=LONGEST_WAIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackingConfig:
    """Where curves go: of updates, and of a run by iteration. No output depends on it: it may change within a run."""

    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ("tensorboard",)  # `docs/guide/training.md`
    project: str = "rla"  # of W&B and trackio


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsConfig:
    """Which checkpoints stay on the disk (`rla prune`). No output depends on it: it may change within a run."""

    keep: int = from_zero(0)  # last finished iterations whose checkpoints stay whole; 0: all iterations of the run
    every: int = from_zero(0)  # the checkpoints of every n-th iteration stay whole, too; 0: of none but the last
    # of every n-th iteration at least `model/` stays, to evaluate or to publish; 0: of none
    export_every: int = from_zero(0)


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
    """What may stop a run (`docs/guide/warnings.md`). No output depends on it: it may change within a run."""

    stop: tuple[GuardName, ...] = ()  # warnings that end their stage with exit code 2, once its outputs are whole
    # a stage at once if none of its first replies can be read: `stop` ends it, `warn` lets it go on
    first_group: Literal["stop", "warn"] = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """On which processes stages run. No output depends on it: it may change within a run."""

    # a configuration of `accelerate launch`, or a launcher of an installed package; none: this process
    training: str | None = None
    own: Any = None  # parameters of that launcher
    # FSDP2: groups of processes that each hold the whole model (HSDP), such as one for each node
    replicas: int = ranged(1, least=1, most=MOST_PROCESSES)
    gradient_sync: Literal["pass", "step"] = "pass"  # FSDP2: gradients are added over processes after each pass or step

    @property
    def configuration(self) -> str | None:
        """The configuration of accelerate with which training is launched; None where it is not."""
        return self.training if self.own is None else str(self.own.configuration)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All sections. Stages depend on the sections that they read and on nothing else."""

    name: str = without_effect("")  # of the run: its folder below runs/; empty: that of the params file
    # of the run: tasks, new models, episodes and training follow from it
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
    tracking: TrackingConfig = field(default_factory=TrackingConfig, metadata=WITHOUT_EFFECT)
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
        all weights learn, as those of a new model do, because nothing can be learnt over a base of noise.
        """
        policy = option == "policy"
        train: TrainConfig = self.train_policy if policy else self.train_rm
        source = self.model.policy if policy or self.warm_start.reward_from_policy else self.model.reward
        return train if train.lora.rank and source != "init" else None
