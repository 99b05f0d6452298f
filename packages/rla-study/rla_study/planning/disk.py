"""Disk from shapes alone, in bytes.

    train state    12 a trained weight: fp32 weights and both moments
    export         the bytes of `dtype` a weight; with LoRA 4 a weight of the adapter
    reference      the bytes of `dtype` a weight, once for all iterations (hard links); none with LoRA
    start          the model of iteration 0, over which the adapters of LoRA lie; a warm start of an adapter adds that,
                   4 a weight in train state and in export
    shards         ids, log-probabilities and texts of the tokens of an iteration
A stage that trains has two saved states and the new checkpoint beside the old one for a moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rla.config.sections import CheckpointsConfig
from rla.config.training import TrainConfig
from rla_study.planning.memory import BYTES
from rla_study.planning.shapes import ModelShape

Taught = Literal["nothing", "weights", "adapter"]  # by a warm start
STATE_ON_DISK = 12
SAVED_STATES = 2  # the last saved update, and the next one that is being written
TOKEN_ON_DISK = 8  # of shards, compressed: an id, a log-probability where it was sampled, its share of the texts


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointBytes:
    """Of one model. `reference` and `start` are written once."""

    state: float
    export: float
    reference: float
    start: float

    @property
    def whole(self) -> float:
        return self.state + self.export


def checkpoint_bytes(shape: ModelShape, config: TrainConfig, *, trains: bool, warm: Taught) -> CheckpointBytes:
    """A model that does not train is written once: all its checkpoints are links to the same files. `warm`: what the
    warm start teaches; all weights are written as fp32.
    """
    whole = shape.weights * BYTES[config.dtype]
    adapter = shape.adapter_weights(config.lora.rank) if config.lora.rank else 0
    start = {"nothing": whole, "weights": 4 * shape.weights, "adapter": whole + 2 * 4 * adapter}[warm]
    if not trains:
        return CheckpointBytes(state=0, export=0, reference=0, start=start)
    if config.lora.rank:
        return CheckpointBytes(state=STATE_ON_DISK * adapter, export=4 * adapter, reference=0, start=start)
    return CheckpointBytes(state=STATE_ON_DISK * shape.weights, export=whole, reference=whole, start=start)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBytes:
    """Of a whole run at its largest. `iteration`: what an iteration writes."""

    iteration: float
    kept: float
    pruned: float


def run_bytes(models: list[CheckpointBytes], *, shards: float, iterations: int, config: CheckpointsConfig) -> RunBytes:
    """With all checkpoints kept, and as `config` prunes them (the same where it keeps all)."""
    whole, export = sum(one.whole for one in models), sum(one.export for one in models)
    first = sum(one.reference + one.start for one in models)
    training = max(SAVED_STATES * one.state for one in models)
    common = first + training + iterations * shards
    kept = common + iterations * whole
    if not config.keep:
        return RunBytes(iteration=whole + shards, kept=kept, pruned=kept)
    counted = whole_and_exported(iterations, config)
    return RunBytes(iteration=whole + shards, kept=kept, pruned=common + counted[0] * whole + counted[1] * export)


def whole_and_exported(iterations: int, config: CheckpointsConfig) -> tuple[int, int]:
    """How many iterations' checkpoints are whole at most, the one that is being made included, and how many more have
    `model/` left.
    """
    whole = set(range(max(1, iterations - config.keep), iterations + 1))
    exported = {i for i in range(1, iterations + 1) if config.export_every and i % config.export_every == 0}
    return len(whole), len(exported - whole)
