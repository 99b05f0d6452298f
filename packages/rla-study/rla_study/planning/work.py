"""Tokens, FLOPs and time of the stages of an iteration, from the parameters' limits and stated guesses.

    forward    2 (weights of the layers) a token, 2 H V a token with logits, 4 L Q a pair of tokens that attend
    training   3 forward passes, one more with gradient checkpointing, one for each of reference and `old: trainer`
Only an episode says how long it is: `Guesses` are the shares of the limits that an average one uses.
"""

from __future__ import annotations

from dataclasses import dataclass

from rla.adaptation.drafting import EPISODES
from rla.config import Config
from rla.config.training import TrainConfig
from rla_study.planning.shapes import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Guesses:
    """What no shape says. `reply` and `steps`: shares of `max_tokens` and `env.max_steps`; all others in tokens."""

    prompt: int = 1000  # the first prompt of an episode, without what follows
    observation: int = 100  # of a step
    reply: float = 0.25
    steps: float = 0.5
    held_out: int = 140  # tasks of an evaluation where evaluation.tasks is 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """`read`: tokens that are computed as prompts, or trained on; `written`: sampled ones, or those with a loss;
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
    """Of so many episodes. With a growing dialogue each token is read once; a window's prompts are read anew."""
    steps, reply = episode_steps(config, guesses), guesses.reply * config.policy.max_tokens
    written = steps * reply
    if config.policy.history == "full":
        length = min(config.generator.context, guesses.prompt + steps * guesses.observation + written)
        return Tokens(read=episodes * max(0.0, length - written), written=episodes * written, length=length)
    prompt = min(config.generator.context, guesses.prompt + guesses.observation * steps / 2)
    return Tokens(read=episodes * steps * prompt, written=episodes * written, length=prompt + reply)


def judged(config: Config, guesses: Guesses, units: float) -> Tokens:
    """Of so many steps, or tasks, each asked about `judge.votes` times: its prompt is read once."""
    if not config.judge.enabled:
        return Tokens(read=0, written=0, length=0)
    reply = guesses.reply * config.judge.max_tokens
    steps = episode_steps(config, guesses)
    prompt = guesses.prompt + guesses.observation * steps / 2 + guesses.reply * config.policy.max_tokens
    prompt = min(config.generator.context, prompt)
    return Tokens(read=units * prompt, written=units * config.judge.votes * reply, length=prompt + reply)


def proposed(config: Config, guesses: Guesses) -> Tokens:
    """Of critiques and edits by a language model."""
    own = config.adaptation.llm
    asked = config.adaptation.max_tasks if config.adaptation.enabled and config.adaptation.proposer == "llm" else 0
    critique, edits = guesses.reply * own.max_tokens, config.adaptation.proposals_per_task
    read = asked * (EPISODES * guesses.prompt + edits * guesses.prompt)
    written = asked * (critique + edits * guesses.reply * own.max_tokens)
    return Tokens(read=read, written=written, length=2 * guesses.prompt)


def inference_flops(shape: ModelShape, tokens: Tokens) -> float:
    """Logits are computed of sampled tokens alone; a token attends to half of its sequence on average."""
    layers = 2.0 * shape.block_weights * tokens.total
    attention = 4.0 * shape.attending * shape.queries * tokens.total * tokens.length / 2
    return layers + attention + 2.0 * shape.hidden * shape.vocabulary * tokens.written


def training_flops(shape: ModelShape, tokens: Tokens, config: TrainConfig) -> float:
    """Of all updates of an iteration. Frozen weights have no gradient: two forward passes in place of three."""
    forward = inference_flops(shape, tokens)
    once = config.kl_coef != 0 and not (config.kl_reference == "previous" and config.old == "trainer")
    scored = int(once) + int(config.old == "trainer")
    passes = (2 if config.lora.rank else 3) + config.gradient_checkpointing
    return forward * (passes * config.epochs + scored) if config.enabled else 0.0
