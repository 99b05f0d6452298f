"""Tokens, FLOPs and time of the stages of an iteration, from the parameters' limits and stated guesses.

    forward    2 (weights of the layers) per token, 2 H V per token with logits, 4 L Q per pair of tokens that attend
    training   3 forward passes, one more with gradient checkpointing, one for the reference, one unless `old: sampler`

The length of episodes is unknown before they are played: `Guesses` gives the average as shares of the limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from rla.adaptation.drafting import EPISODES
from rla.config import Config
from rla.config.training import TrainConfig
from rla_study.planning.shapes import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Guesses:
    """Quantities that shapes do not determine. `reply` and `steps`: shares of `max_tokens` and `env.max_steps`; all
    others in tokens.
    """

    prompt: int = 1000  # the first prompt of an episode, without later turns
    observation: int = 100  # per step
    reply: float = 0.25
    steps: float = 0.5
    held_out: int = 140  # tasks of an evaluation if evaluation.tasks is 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """`read`: tokens that are computed as prompts, or trained on. `written`: tokens that are sampled, or have a loss.
    `length`: of an average sequence.
    """

    read: float
    written: float
    length: float

    @property
    def total(self) -> float:
        return self.read + self.written


def episode_steps(config: Config, guesses: Guesses) -> int:
    return max(1, round(guesses.steps * config.env.max_steps))


def played(config: Config, guesses: Guesses, episodes: int) -> Tokens:
    """Tokens of `episodes` episodes. A growing dialogue reads each token once, a window its whole prompt per step."""
    steps, reply = episode_steps(config, guesses), guesses.reply * config.policy.max_tokens
    written = steps * reply
    if config.policy.history == "full":
        length = min(config.generator.context, guesses.prompt + steps * guesses.observation + written)
        return Tokens(read=episodes * max(0.0, length - written), written=episodes * written, length=length)
    prompt = min(config.generator.context, guesses.prompt + guesses.observation * steps / 2)
    return Tokens(read=episodes * steps * prompt, written=episodes * written, length=prompt + reply)


def judged(config: Config, guesses: Guesses, units: float) -> Tokens:
    """Tokens of judging `units` steps or tasks, each with `judge.votes` votes; the prompt is read once."""
    if not config.judge.enabled:
        return Tokens(read=0, written=0, length=0)
    reply = guesses.reply * config.judge.max_tokens
    steps = episode_steps(config, guesses)
    prompt = guesses.prompt + guesses.observation * steps / 2 + guesses.reply * config.policy.max_tokens
    prompt = min(config.generator.context, prompt)
    return Tokens(read=units * prompt, written=units * config.judge.votes * reply, length=prompt + reply)


def proposed(config: Config, guesses: Guesses) -> Tokens:
    """Tokens of critiques and edits by a language model."""
    own = config.adaptation.llm
    asked = config.adaptation.max_tasks if config.adaptation.enabled and config.adaptation.proposer == "llm" else 0
    critique, edits = guesses.reply * own.max_tokens, config.adaptation.proposals_per_task
    read = asked * (EPISODES * guesses.prompt + edits * guesses.prompt)
    written = asked * (critique + edits * guesses.reply * own.max_tokens)
    return Tokens(read=read, written=written, length=2 * guesses.prompt)


def inference_flops(shape: ModelShape, tokens: Tokens) -> float:
    """Logits are computed for sampled tokens only; a token attends to half of its sequence on average."""
    layers = 2.0 * shape.block_weights * tokens.total
    attention = 4.0 * shape.attending * shape.queries * tokens.total * tokens.length / 2
    return layers + attention + 2.0 * shape.hidden * shape.vocabulary * tokens.written


def training_flops(shape: ModelShape, tokens: Tokens, config: TrainConfig) -> float:
    """FLOPs of all updates of an iteration. Frozen weights have no gradient: two forward passes in place of three."""
    forward = inference_flops(shape, tokens)
    once = config.kl_coef != 0 and not (config.kl_reference == "previous" and config.rescored)
    scored = int(once) + int(config.rescored)
    passes = (2 if config.lora.rank else 3) + config.gradient_checkpointing
    return forward * (passes * config.epochs + scored) if config.enabled else 0.0
