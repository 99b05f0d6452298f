"""Parameters of the stages that train: one optimisation stage, its adapter, and the supervised start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rla.config.effect import without_effect


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraConfig:
    """A low-rank adapter in place of full training; `rank: 0`: none."""

    rank: int = 0  # of the adapter
    alpha: float = 32.0  # the adapter counts alpha / rank
    targets: tuple[str, ...] = ()  # names of linear layers; empty: all but the output layer


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One optimisation stage: policy or reward model."""

    enabled: bool = True  # false: the checkpoint goes on as it is
    lr: float = 1e-6  # the highest learning rate
    beta1: float = 0.9  # of Adam
    beta2: float = 0.99  # of Adam
    weight_decay: float = 0.0  # of AdamW
    warmup_steps: int = 0  # updates of the run in which the rate rises to `lr`
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"  # how the rate falls over the updates of the run
    lr_steps: int = 0  # `linear`, `cosine`: the update of the run at which the rate is least
    lr_min: float = 0.0  # the least rate, as a share of lr
    epochs: int = 1  # how often an iteration trains on its sequences
    updates: int = 4  # optimizer steps per epoch
    sequences_per_update: int = 0  # as many steps as it takes with so many sequences in each; 0: `updates`
    tokens_per_batch: int = 8192  # tokens of one forward pass
    max_tokens: int = 4096  # of a text; replies that end beyond it are counted and do not train
    loss: Literal["ppo_clip", "cispo", "gspo"] = "ppo_clip"  # `docs/guide/training.md`
    ratio: Literal["token", "reply"] = "token"  # what an importance ratio is taken over; `gspo`: always the reply
    clip_low: float = 0.2  # ratios are clipped to 1 - clip_low and 1 + clip_high
    clip_high: float = 0.2  # `cispo`: the largest ratio itself
    # `auto`, and none for dual_clip: trainer, token and 3 behind an engine in bf16, otherwise sampler, none and 0.
    dual_clip: float | None = None  # the largest ratio where the advantage is negative; 0: no bound
    old: Literal["auto", "sampler", "trainer"] = "auto"  # whose log-probabilities the ratio starts from
    correction: Literal["auto", "none", "token", "reply"] = "auto"  # of the sampler's log-probabilities; old: trainer
    correction_cap: float = 2.0  # the largest such correction
    mask_low: float = 0.0  # a token does not train where trainer / sampler is less; 0: no bound; old: trainer
    mask_high: float = 0.0  # a token does not train where trainer / sampler is more; 0: no bound; old: trainer
    aggregation: Literal["token", "sequence", "trajectory", "fixed"] = "token"  # of tokens
    fixed_length: int = 0  # `fixed`: tokens that a reply is divided by
    entropy_coef: float = 0.0  # weight of the mean entropy, which is subtracted
    kl_coef: float = 0.01  # of the penalty; 0: no reference model is needed
    kl_reference: Literal["initial", "previous"] = "initial"  # the run's first weights, or the iteration's
    max_grad_norm: float = 1.0  # larger gradients are scaled down to it
    max_skipped: int = without_effect(3)  # updates that may be skipped, for a gradient that is not finite
    max_samples: int = 0  # steps of an iteration that may train, drawn by seed; 0: all
    dtype: Literal["float32", "bfloat16"] = "float32"  # what forward and backward passes compute in; weights stay fp32
    fp32_head: bool = False  # the output layer computes in fp32 where the rest is in bf16
    gradient_checkpointing: bool = False  # activations are computed again: less memory, more time
    lora: LoraConfig = field(default_factory=LoraConfig)
    threads: int = 0  # CPU threads; 0: as many as the process may use


@dataclass(frozen=True, slots=True, kw_only=True)
class SftConfig:
    """Supervised training before reinforcement: `examples` demonstrations or judgements."""

    examples: int = 1000  # demonstrations or judgements
    steps: int = 200  # updates
    batch_size: int = 16  # examples of an update
    lr: float = 3e-3  # learning rate
    noise: float = 0.0  # policy: mean share of random actions shown; reward model: share of flipped labels


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStartConfig:
    """Supervised start of both models; `enabled: false` for models that already follow instructions."""

    enabled: bool = True  # false: both models go on as they are
    reward_from_policy: bool = False  # the reward model starts from the policy's clone, not from `model.reward`
    scenes: int = 0  # built-in scenes of its own to demonstrate on; 0: the tasks of the pool
    policy: SftConfig = field(default_factory=SftConfig)
    reward: SftConfig = field(default_factory=SftConfig)
    alike: int = 0  # of the same judgement, how many an episode teaches the reward model at most; 0: all
    # Then the reward model goes on, on whole episodes: it learns how often each judgement is due. steps 0: no more.
    calibration: SftConfig = field(default_factory=lambda: SftConfig(steps=0))
    threads: int = 0  # CPU threads; 0: as many as the process may use
