"""Peak host memory of one update on a CPU: what `rla plan-memory` says, and what it is.

python -m study_tests.bench.memory_of_update --hidden 512 --layers 8 [--checkpointing]
Prints the bytes that were measured, those that the formula gives, and their ratio. Measured: the process's largest
resident set while it trains, without what it had after the updates of a tiny model, which import all libraries.
"""

from __future__ import annotations

import argparse
import json

from rla_study.planning.memory import CPU_TOKENS, Launched, training_bytes
from rla_study.planning.shapes import SHAPES, ModelShape

from rla.config.training import TrainConfig
from rla.training.loop import update
from study_tests.bench.bench_shape import prepared
from tests.bench.resident import peak_resident, resident

SIZES = {"hidden": 384, "layers": 6, "vocabulary": 4000, "tokens": 512, "length": 256}


def measured(shape: ModelShape, config: TrainConfig, *, length: int) -> int:
    """Of two updates on passes of `config.tokens_per_batch` tokens."""
    before = resident()
    with prepared(shape, config, trajectories_per_update=config.tokens_per_batch // length) as stage:
        for _ in range(2):  # the moments are there from the first step on
            update(stage, range(len(stage.sequences)))
    return peak_resident() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in SIZES.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--checkpointing", action="store_true")
    chosen = parser.parse_args()
    shape = ModelShape(
        name="measured",
        hidden=chosen.hidden,
        intermediate=4 * chosen.hidden,
        layers=chosen.layers,
        heads=chosen.hidden // 64,
        key_heads=2,
        width=64,
        vocabulary=chosen.vocabulary,
        tied=True,
    )
    config = TrainConfig(
        lr=1e-6,
        kl_coef=0.0,
        tokens_per_batch=min(chosen.tokens, CPU_TOKENS),
        max_tokens=chosen.length,
        gradient_checkpointing=chosen.checkpointing,
        threads=1,
    )
    measured(SHAPES["tiny"], config, length=chosen.length)  # imports what the first update imports
    expected = training_bytes(shape, config, Launched(), cuda=False)
    found = measured(shape, config, length=chosen.length)
    row = {"weights": shape.weights, "measured": found, "expected": expected.total, "ratio": found / expected.total}
    print(json.dumps(row | {"state": expected.state, "activations": expected.activations, "output": expected.output}))


if __name__ == "__main__":
    main()
