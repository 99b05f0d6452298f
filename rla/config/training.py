"""Parameters of the stages that train: one optimisation stage, its adapter, and the supervised start.

Some follow from the engine's precision if the params file leaves them open (`protected`). An engine that computes in
bf16 samples from another distribution than the trainer's: its log-probabilities are off by hundredths, and by far more
on tokens that are improbable. Importance ratios against them are wrong before the first update. Behind such an engine
the ratio starts from the trainer's own log-probabilities (`old: trainer`), the sampler's are corrected for token by
token (`correction: token`, truncated importance sampling, Yao et al. 2025), and the second bound of the clip is on
(`dual_clip: 3`, Ye et al. 2020). An engine in fp32 needs none of this.

Learning rates depend on whether all weights or an adapter train (`RATES`), and only new models get a warm start, unless
the file says otherwise (`warmed`). Keys that the params file sets are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Literal, TypeVar

from rla.config.schema import fraction, from_one, from_zero, ranged, without_effect


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraConfig:
    """A low-rank adapter in place of full training; `rank: 0`: none."""

    rank: int = ranged(0, least=0, most=65536)  # of the adapter
    alpha: float = ranged(32.0, above=0.0, most=1e6)  # the adapter counts alpha / rank
    targets: tuple[str, ...] = ()  # names of linear layers; empty: all but the output layer


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One optimisation stage: policy or reward model."""

    enabled: bool = True  # false: the checkpoint goes on as it is
    vision: Literal["trained", "frozen"] = "trained"  # the vision encoder, if the model has one
    lr: float | None = fraction(None)  # the highest learning rate; none: 1e-6, with LoRA 4e-5
    beta2: float = ranged(0.99, least=0.0, below=1.0)  # of Adam, whose beta1 is 0.9
    weight_decay: float = fraction(0.0)  # of AdamW
    warmup_steps: int = from_zero(0)  # updates of the run in which the rate rises to `lr`; then it is constant
    epochs: int = from_one(1)  # how often an iteration trains on its sequences
    updates: int = from_one(4)  # optimizer steps per epoch
    sequences_per_update: int = from_zero(0)  # as many steps as it takes with so many sequences in each; 0: `updates`
    # samples whose advantage is 0: left out, or counted in updates and means
    zero_advantage: Literal["drop", "count"] = "drop"
    whole_groups: bool = False  # an update has all sequences of a task, or none of them
    tokens_per_batch: int = from_one(8192)  # tokens of one forward pass
    max_tokens: int = from_one(4096)  # of a text; replies that end beyond it are counted and do not train
    loss: Literal["ppo_clip", "cispo", "gspo"] = "ppo_clip"  # `docs/guide/training.md`
    # unit of an importance ratio; `gspo`: segment if that is named, else reply
    ratio: Literal["token", "reply", "segment"] = "token"
    clip_low: float = ranged(0.2, least=0.0, most=1e6)  # ratios are clipped to 1 - clip_low and 1 + clip_high
    clip_high: float = ranged(0.2, least=0.0, most=1e6)  # `cispo`: the largest ratio itself
    # The largest ratio if the advantage is negative; 0: unbounded.
    # `auto`, and none for dual_clip: trainer, token and 3 behind an engine in bf16, otherwise sampler, none and 0.
    dual_clip: float | None = ranged(None, above=1.0, most=1e6, or_zero=True)
    old: Literal["auto", "sampler", "trainer"] = "auto"  # whose log-probabilities the ratio starts from
    correction: Literal["auto", "none", "token", "reply"] = "auto"  # of the sampler's log-probabilities; old: trainer
    # a token does not train if trainer / sampler is less; 0: off; old: trainer
    mask_low: float = ranged(0.0, least=0.0, below=1.0)
    # a token does not train if trainer / sampler is more; 0: off; old: trainer
    mask_high: float = ranged(0.0, above=1.0, most=1e9, or_zero=True)
    aggregation: Literal["token", "sequence", "trajectory", "fixed", "trajectory_fixed"] = "token"  # of tokens
    # `fixed`: tokens that a reply is divided by; `trajectory_fixed`: that a trajectory is
    fixed_length: int = from_zero(0)
    entropy_coef: float = ranged(0.0, least=0.0, most=1e6)  # weight of the mean entropy, which is subtracted
    kl_coef: float = ranged(0.01, least=0.0, most=1e6)  # of the penalty; 0: no reference model is needed
    kl_reference: Literal["initial", "previous"] = "initial"  # the run's first weights, or the iteration's
    max_grad_norm: float = ranged(1.0, above=0.0, most=1e9)  # larger gradients are scaled down to it
    max_samples: int = from_zero(0)  # steps of an iteration that may train, drawn by seed; 0: all
    dtype: Literal["float32", "bfloat16"] = "float32"  # of forward and backward passes; weights stay fp32
    fp32_head: bool = False  # the output layer computes in fp32 if the rest is in bf16
    gradient_checkpointing: bool = False  # activations are computed again: less memory, more time
    lora: LoraConfig = field(default_factory=LoraConfig)
    threads: int = ranged(0, least=0, most=4096)  # CPU threads; 0: as many as the process may use

    @property
    def rate(self) -> float:
        """`lr`, decided."""
        return RATES[self.lora.rank > 0] if self.lr is None else self.lr

    @property
    def adapter(self) -> str:
        """The identity of the adapter that trains, for digests: a change of it makes other weights."""
        return f"{self.lora} {self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTrainConfig(TrainConfig):
    """The optimisation stage of the reward model: the keys of the policy's, and `replay`."""

    replay: int = from_zero(0)  # iterations before this one whose judgements train again


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonConfig:
    """Supervised training before reinforcement: its examples and how long it lasts."""

    examples: int = from_one(1000)  # demonstrations or judgements
    steps: int = from_zero(200)  # updates
    batch_size: int = from_one(16)  # examples of an update
    lr: float | None = fraction(None)  # learning rate; none: 2e-5, with LoRA 2e-4, of a new model 3e-3

    @property
    def rate(self) -> float:
        """`lr`; the rate of all weights of a pretrained model if nothing has decided it."""
        return TAUGHT_RATES[0] if self.lr is None else self.lr

    @property
    def trains(self) -> bool:
        return self.steps > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertConfig(LessonConfig):
    """Supervised training on an expert that never errs, before that of `policy`, which has its other settings."""

    steps: int = from_zero(0)  # updates; 0: no such training
    observed: float = fraction(0.3)  # loss weight of the tokens that the policy reads in demonstrations


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardLessonConfig(LessonConfig):
    """Supervised training of the reward model on labelled judgements."""

    # policy: a demonstration's share of random actions is drawn between 0 and twice this, and is 1 at most; reward
    # model: share of flipped labels
    noise: float = fraction(0.0)
    # an update adds up passes of at most so many tokens; 0: as many as 2 GiB of activations allow, 8 GiB on a GPU
    tokens_per_pass: int = from_zero(0)
    gradient_checkpointing: bool = False  # activations are computed again: less memory, more time


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationConfig(LessonConfig):
    """Supervised training after that of `reward`, which has its other settings."""

    steps: int = from_zero(0)  # updates; 0: no such training
    noise: float = fraction(0.0)  # share of flipped labels


@dataclass(frozen=True, slots=True, kw_only=True)
class SftConfig(RewardLessonConfig):
    """Supervised training of the policy, with all settings that a supervised training has."""

    epochs: int = from_zero(0)  # passes over the examples, whole batches of each, in place of `steps`; 0: `steps`
    lr_schedule: Literal["constant", "linear", "cosine"] = "cosine"  # how the rate falls after the warm-up, to zero
    warmup_share: float = fraction(0.05)  # of the updates, in which the rate rises to `lr`; 0: none
    weight_decay: float = fraction(0.0)  # of AdamW
    beta2: float = ranged(0.99, least=0.0, below=1.0)  # of Adam, whose beta1 is 0.9
    packing: bool = False  # examples of a pass share a row without seeing each other; false: rows are padded
    # conversations, and no others, are cut on the right to so many tokens; 0: longer ones are left out
    max_length: int = from_zero(0)
    observed: float = fraction(0.3)  # loss weight of the tokens that the policy reads in demonstrations

    @property
    def trains(self) -> bool:
        return bool(self.steps or self.epochs)

    def updates(self, examples: int) -> int:
        """Optimizer steps over so many examples: `steps`, or the whole batches of `epochs` passes."""
        return self.epochs * max(1, examples // self.batch_size) if self.epochs else self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStartConfig:
    """Supervised start of both models, if they cannot act and judge yet."""

    enabled: bool | None = None  # false: both models go on as they are; none: true if `model.policy` is init
    reward_from_policy: bool = False  # the reward model starts from the policy's clone, not from `model.reward`
    scenes: int = from_zero(0)  # built-in scenes of its own to demonstrate on; 0: the tasks of the pool
    # The policy first learns from an expert that never errs. A model learns slow things, such as positions on a
    # screen, sooner from demonstrations without errors.
    expert: ExpertConfig = field(default_factory=ExpertConfig)
    policy: SftConfig = field(default_factory=SftConfig)
    reward: RewardLessonConfig = field(default_factory=RewardLessonConfig)
    alike: int = from_zero(0)  # of the same judgement, how many an episode teaches the reward model at most; 0: all
    # Then the reward model goes on, on whole episodes: it learns how often each judgement is due. steps 0: no more.
    calibration: CalibrationConfig = field(default_factory=CalibrationConfig)
    threads: int = ranged(0, least=0, most=4096)  # CPU threads; 0: as many as the process may use
    # The policy learns from conversations in place of demonstrations: a shard, a Parquet or JSONL file, a folder of
    # those, hub:owner/name, or `collected` (`docs/guide/sft.md`).
    conversations: str = without_effect("")

    def settings(self, name: str) -> SftConfig:
        """All settings of the training `name` (expert, policy, reward, calibration)."""
        if name == "policy":
            return self.policy
        if name == "expert":
            return _over(replace(self.policy, epochs=0, noise=0.0), self.expert)
        reward = _over(SftConfig(), self.reward)
        return reward if name == "reward" else _over(reward, self.calibration)


def _over(base: SftConfig, lesson: LessonConfig) -> SftConfig:
    return replace(base, **{key.name: getattr(lesson, key.name) for key in fields(lesson)})


DUAL_CLIP = 3.0
BETA1 = 0.9  # of Adam
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
    masked = bool(train.mask_low or train.mask_high)
    old, correction, dual_clip = train.old, train.correction, train.dual_clip
    if old == "auto":
        old = "trainer" if half or masked or correction in ("token", "reply") else "sampler"
    if correction == "auto":
        correction = "token" if half and old == "trainer" else "none"
    if dual_clip is None:
        bounds = train.loss != "cispo" and 1 + train.clip_high < DUAL_CLIP
        dual_clip = DUAL_CLIP if half and bounds else 0.0
    return replace(train, old=old, correction=correction, dual_clip=dual_clip, lr=train.rate)
