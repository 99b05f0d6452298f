"""Disk space from shapes alone, in bytes.

    train state    12 per trained weight: fp32 weights and both moments
    export         the bytes of `dtype` per weight; with LoRA 4 per weight of the adapter
    reference      the bytes of `dtype` per weight, once for all iterations (hard links); none with LoRA
    start          the model of iteration 0, which LoRA adapters lie over; the warm start of an adapter adds it again,
                   with 4 per weight in train state and in export
    shards         ids, log-probabilities and texts of the tokens of an iteration

For a moment a training stage has two saved states and the new checkpoint in addition to the old one.
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
SAVED_STATES = 2  # the last saved update, and the one that is being written
TOKEN_ON_DISK = 8  # compressed, in shards: an id, a log-probability if it was sampled, its share of the texts


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
    """A model that does not train is written once, and all its checkpoints are links to the same files. `warm`: the
    part that the warm start trains; full weights are written as fp32.
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
    """A whole run at its largest. `iteration`: bytes written per iteration."""

    iteration: float
    kept: float
    pruned: float


def run_bytes(models: list[CheckpointBytes], *, shards: float, iterations: int, config: CheckpointsConfig) -> RunBytes:
    """Disk space with all checkpoints kept, and with pruning by `config` (the same if it keeps all)."""
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
    """The largest number of complete checkpoints, with the one being written, and how many more keep `model/`."""
    whole = set(range(max(1, iterations - config.keep), iterations + 1))
    exported = {i for i in range(1, iterations + 1) if config.export_every and i % config.export_every == 0}
    return len(whole), len(exported - whole)
