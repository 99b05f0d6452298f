"""How steps are judged: by the run's reward model, or by a chat server that does not train."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rla.config.bounds import LONGEST_WAIT, fraction, from_one, heat, ranged
from rla.config.effect import without_effect


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
    prompt: Literal["plain", "published"] = "plain"  # for small models that were trained on it, or for chat models
    votes: int = from_one(3)  # m, judgements of each step
    decoding: Literal["free", "admissible"] = "free"  # admissible: one of the judge's known replies
    # observations before the action whose pictures a prompt shows, beside those that followed it
    images: int = ranged(1, least=1, most=1024)
    temperature: float = heat(0.8)  # of sampling
    max_tokens: int = from_one(1024)  # of a judgement

    @property
    def trains(self) -> bool:
        """Whether the judge is the run's reward model. A chat server is not, and the reward model stays as it is."""
        return self.backend == "generator"
