"""Defaults of what few settings need of `rla.envs.protocols.Setting`."""

from __future__ import annotations

from typing import Literal

from rla.config import Config
from rla.config.sections import EnvConfig
from rla.envs.protocols import Ask, Lesson, Prober, Proof, RewardRule, Service
from rla.store.records import Task


class StepByStep:
    """What most settings have: environments in this process or in the pool, and a reward model that judges steps."""

    imported: Literal["alfworld", "files"] = "files"
    has_expert = True
    own_proof = False
    exact_text = False

    def service(self, config: EnvConfig) -> Service | None:
        return None

    def prober(self, config: Config) -> Prober | None:
        return None

    def reward_rule(self) -> RewardRule | None:
        return None

    def lesson(self, task: Task, config: Config, *, seed: int) -> Lesson | None:
        return None

    def proof(self, config: Config, ask: Ask | None) -> Proof | None:
        return None
