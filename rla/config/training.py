"""Parameters of the stages that train: one optimisation stage, its adapter, and the supervised start.

Some follow from the engine's precision if the params file leaves them open (`protected`). An engine that computes in
bf16 samples from another distribution than the trainer's: its log-probabilities are off by hundredths, and by far more
on tokens that are improbable. Importance ratios against them are wrong before the first update. Behind such an engine
the ratio starts from the trainer's own log-probabilities, the sampler's are corrected for token by token (`old:
token_tis`, truncated importance sampling, Yao et al. 2025), and the second bound of the clip is on (`dual_clip: 3`, Ye
et al. 2020). An engine in fp32 needs none of this.

Learning rates depend on whether all weights or an adapter train (`RATES`), and only new models get a warm start, unless
the file says otherwise (`warmed`). Keys that the params file sets are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Literal, TypeVar

from rla.config.schema import constant, fraction, from_one, from_zero, ranged, without_effect


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraConfig:
    """A low-rank adapter on all linear layers but the output layer, in place of full training; `rank: 0`: none."""

    rank: int = ranged(0, least=0, most=65536)  # of the adapter; set it if fp32 weights and Adam do not fit the GPU
    alpha: float = ranged(32.0, above=0.0, most=1e6)  # the adapter counts alpha / rank; raise it like a learning rate


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One optimisation stage: policy or reward model."""

    enabled: bool = True  # false: the checkpoint goes on as it is; to compare with a run that does not train it
    # the vision encoder, if the model has one; freeze it to save memory, or for vLLM's adapters
    vision: Literal["trained", "frozen"] = "trained"
    # the highest learning rate; null: 1e-6, with LoRA 4e-5. A small new model needs more
    lr: float | None = fraction(None)
    beta2: float = ranged(0.99, least=0.0, below=1.0)  # of Adam, whose beta1 is 0.9; raise it for thousands of updates
    weight_decay: float = fraction(0.0)  # of AdamW; only to repeat a published run
    # updates of the run in which the rate rises to `lr`; then it is constant. Raise it if the first updates explode
    warmup_steps: int = from_zero(0)
    epochs: int = from_one(1)  # how often an iteration trains on its sequences; raise it if episodes are expensive
    updates: int = from_one(4)  # optimizer steps per epoch; fewer are less noisy
    # as many steps as it takes with so many sequences in each; 0: `updates`. Set it if iterations differ in size
    sequences_per_update: int = from_zero(0)
    # samples whose advantage is 0: dropped; counted in updates and means; or counted, with all sequences of a task in
    # the same update, as verl does
    zero_advantage: Literal["drop", "count", "count_groups"] = "drop"
    tokens_per_batch: int = from_one(8192)  # tokens of one forward pass; lower it if memory runs out
    # of a text; replies that end beyond it are counted and do not train. Raise it if the report counts many
    max_tokens: int = from_one(4096)
    loss: Literal["ppo_clip", "cispo", "gspo"] = "ppo_clip"  # `docs/guide/training.md`
    # unit of an importance ratio; `gspo`: segment if that is named, else reply
    ratio: Literal["token", "reply", "segment"] = "token"
    clip_low: float = ranged(0.2, least=0.0, most=1e6)  # ratios are clipped to 1 - clip_low and 1 + clip_high
    clip_high: float = ranged(0.2, least=0.0, most=1e6)  # `cispo`: the largest ratio itself
    # the largest ratio if the advantage is negative; 0: unbounded. null: 3 behind an engine in bf16, otherwise 0
    dual_clip: float | None = ranged(None, above=1.0, most=1e6, or_zero=True)
    # whose log-probabilities the ratio starts from. `token_tis`, `reply_tis`: the trainer's, and the sampler's are
    # corrected for by truncated importance sampling. `auto`: token_tis behind an engine in bf16, otherwise sampler
    old: Literal["auto", "sampler", "trainer", "token_tis", "reply_tis"] = "auto"
    # how tokens add up (`docs/guide/training.md`); `fixed` and `trajectory_fixed` divide by `max_tokens`
    aggregation: Literal["token", "sequence", "trajectory", "fixed", "trajectory_fixed"] = "token"
    entropy_coef: float = ranged(0.0, least=0.0, most=1e6)  # weight of the mean entropy; raise it if entropy collapses
    kl_coef: float = ranged(0.01, least=0.0, most=1e6)  # of the penalty; 0: no reference model is needed
    kl_reference: Literal["initial", "previous"] = "initial"  # the run's first weights, or the iteration's
    max_grad_norm: float = ranged(1.0, above=0.0, most=1e9)  # larger gradients are scaled down to it
    max_samples: int = from_zero(0)  # steps of an iteration that may train, drawn by seed; 0: all
    dtype: Literal["float32", "bfloat16"] = "float32"  # of forward and backward passes; weights stay fp32
    gradient_checkpointing: bool = False  # activations are computed again: less memory, more time
    lora: LoraConfig = field(default_factory=LoraConfig)

    @property
    def rate(self) -> float:
        """`lr`, decided."""
        return RATES[self.lora.rank > 0] if self.lr is None else self.lr

    @property
    def correction(self) -> Literal["token", "reply"] | None:
        """The unit by which the sampler's log-probabilities are corrected for, if they are."""
        return CORRECTIONS.get(self.old)

    @property
    def rescored(self) -> bool:
        """Whether ratios start from the trainer's own log-probabilities; while `auto` is undecided they do not."""
        return self.old in ("trainer", *CORRECTIONS)

    @property
    def adapter(self) -> str:
        """The identity of the adapter that trains, for digests: a change of it makes other weights."""
        return f"{self.lora} {self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTrainConfig(TrainConfig):
    """The optimisation stage of the reward model: the keys of `train_policy` except those fixed here, and `replay`."""

    weight_decay: float = constant(0.0)
    epochs: int = constant(1)
    sequences_per_update: int = constant(0)
    zero_advantage: Literal["drop", "count", "count_groups"] = constant("drop")
    loss: Literal["ppo_clip", "cispo", "gspo"] = constant("ppo_clip")
    ratio: Literal["token", "reply", "segment"] = constant("token")
    entropy_coef: float = constant(0.0)
    max_grad_norm: float = constant(1.0)
    # iterations before this one whose judgements train again; raise it if an iteration has few of them
    replay: int = from_zero(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonConfig:
    """Supervised training that takes its other parameters from `policy` (expert) or `reward` (calibration)."""

    examples: int = from_one(1000)  # demonstrations or judgements
    steps: int = from_zero(0)  # updates; 0: no such training
    # learning rate; null: 2e-5, with LoRA 2e-4, of a new model 3e-3. Lower it if the loss jumps
    lr: float | None = fraction(None)

    @property
    def rate(self) -> float:
        """`lr`; the rate of all weights of a pretrained model if nothing has decided it."""
        return TAUGHT_RATES[0] if self.lr is None else self.lr

    @property
    def trains(self) -> bool:
        return self.steps > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardLessonConfig(LessonConfig):
    """Supervised training of the reward model on labelled judgements. Passes are as large as those of `policy`."""

    steps: int = from_one(200)  # updates; raise it if the loss still falls
    batch_size: int = from_one(16)  # examples of an update
    # policy: a demonstration's share of random actions is drawn between 0 and twice this, and is 1 at most; reward
    # model: share of flipped labels
    noise: float = fraction(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SftConfig(RewardLessonConfig):
    """Supervised training of the policy, with all settings that a supervised training has."""

    steps: int = from_zero(200)  # updates; raise it if the loss still falls
    epochs: int = from_zero(0)  # passes over the examples, whole batches of each, in place of `steps`; 0: `steps`
    lr_schedule: Literal["constant", "linear", "cosine"] = "cosine"  # how the rate falls after the warm-up, to zero
    warmup_share: float = fraction(0.05)  # of the updates, in which the rate rises to `lr`; 0: none
    weight_decay: float = fraction(0.0)  # of AdamW; only to repeat a published run
    beta2: float = ranged(0.99, least=0.0, below=1.0)  # of Adam, whose beta1 is 0.9; only to repeat a published run
    # an update adds up passes of at most so many tokens; 0: as many as 2 GiB of activations allow, 8 GiB on a GPU
    tokens_per_pass: int = from_zero(0)
    gradient_checkpointing: bool = False  # activations are computed again: less memory, more time
    packing: bool = False  # examples of a pass share a row without seeing each other; false: rows are padded
    # conversations, and no others, are cut on the right to so many tokens; 0: longer ones are left out
    max_length: int = from_zero(0)
    # loss weight of the tokens that the policy reads in demonstrations; 0 if it need not predict the environment
    observed: float = fraction(0.3)

    @property
    def trains(self) -> bool:
        return bool(self.steps or self.epochs)

    def updates(self, examples: int) -> int:
        """Optimizer steps over so many examples: `steps`, or the whole batches of `epochs` passes."""
        return self.epochs * max(1, examples // self.batch_size) if self.epochs else self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStartConfig:
    """Supervised start of both models, if they cannot act and judge yet."""

    enabled: bool | None = None  # false: both models go on as they are; null: true if `model.policy` is init
    # the reward model starts from the policy's clone, not from `model.reward`; for small models, which then know words
    reward_from_policy: bool = False
    scenes: int = from_zero(0)  # built-in scenes of its own to demonstrate on; 0: the tasks of the pool
    # The policy first learns from an expert that never errs, with the other settings of `policy`. A model learns slow
    # things, such as positions on a screen, sooner from demonstrations without errors.
    expert: LessonConfig = field(default_factory=LessonConfig)
    policy: SftConfig = field(default_factory=SftConfig)
    reward: RewardLessonConfig = field(default_factory=RewardLessonConfig)
    alike: int = from_zero(0)  # of the same judgement, how many an episode teaches the reward model at most; 0: all
    # Then the reward model goes on, on whole episodes, with the other settings of `reward` and no flipped label: it
    # learns how often each judgement is due.
    calibration: LessonConfig = field(default_factory=LessonConfig)
    # The policy learns from conversations in place of demonstrations: a shard, a Parquet or JSONL file, a folder of
    # those, hub:owner/name, or `collected` (`docs/guide/sft.md`).
    conversations: str = without_effect("")

    def settings(self, name: str) -> SftConfig:
        """All settings of the training `name` (expert, policy, reward, calibration)."""
        if name == "policy":
            return self.policy
        if name == "expert":
            return _over(replace(self.policy, epochs=0, noise=0.0), self.expert)
        passes = {key: getattr(self.policy, key) for key in ("tokens_per_pass", "gradient_checkpointing")}
        reward = _over(SftConfig(**passes), self.reward)
        return reward if name == "reward" else _over(replace(reward, noise=0.0), self.calibration)


def _over(base: SftConfig, lesson: LessonConfig) -> SftConfig:
    return replace(base, **{key.name: getattr(lesson, key.name) for key in fields(lesson)})


DUAL_CLIP = 3.0
BETA1 = 0.9  # of Adam
CORRECTIONS: dict[str, Literal["token", "reply"]] = {"token_tis": "token", "reply_tis": "reply"}
# Learning rates of all weights, and of an adapter. Supervised ones are those of TRL and of its guide to LoRA; 4e-5 is
# that of tinker-cookbook's loop.
RATES, TAUGHT_RATES, NEW_RATE = (1e-6, 4e-5), (2e-5, 2e-4), 3e-3

Section = TypeVar("Section", bound=TrainConfig)
Lesson = TypeVar("Lesson", bound=LessonConfig)


def warmed(warm: WarmStartConfig, *, new: tuple[bool, bool], lora: tuple[bool, bool]) -> WarmStartConfig:
    """`warm` with everything decided. Of policy and reward model: whether each is a new one, and trains an adapter."""

    def with_rate(one: Lesson, place: int) -> Lesson:
        rate = NEW_RATE if new[place] else TAUGHT_RATES[lora[place]]
        return one if one.lr is not None else replace(one, lr=rate)

    return replace(
        warm,
        enabled=new[0] if warm.enabled is None else warm.enabled,
        expert=with_rate(warm.expert, 0),
        policy=with_rate(warm.policy, 0),
        reward=with_rate(warm.reward, 1),
        calibration=with_rate(warm.calibration, 1),
    )


def protected(train: Section, *, half: bool) -> Section:
    """`train` with every `auto` decided. `half`: whether the engine that samples computes in bf16."""
    old, dual_clip = train.old, train.dual_clip
    if old == "auto":
        old = "token_tis" if half else "sampler"
    if dual_clip is None:
        bounds = train.loss != "cispo" and 1 + train.clip_high < DUAL_CLIP
        dual_clip = DUAL_CLIP if half and bounds else 0.0
    return replace(train, old=old, dual_clip=dual_clip, lr=train.rate)
