"""Sections on which no output depends: where curves go, what stays on the disk, what may stop a run, on which processes
it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rla.config.bounds import MOST_PROCESSES, from_zero, ranged


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
    # a stage at once if no reply of its first group can be read: `stop` ends it, `warn` lets it go on
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
