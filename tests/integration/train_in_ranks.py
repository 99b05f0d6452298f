"""What each rank of the test runs: `train_in_ranks.py START OUT KIND ...`. Of each three words two stages, one from the
state of the other: all in one process, because its start takes longer than they do.
"""

import sys
from dataclasses import replace
from pathlib import Path

from rla.config.training import LoraConfig, TrainConfig
from rla.processes import flag, leave
from rla.training.loop import train
from tests.unit.training.builders import random_sequences

CONFIG = TrainConfig(lr=1e-3, updates=3, kl_coef=0.1, entropy_coef=0.01, tokens_per_batch=64, old="trainer")
CONFIGS = {
    "full": CONFIG,
    "lora": replace(CONFIG, lora=LoraConfig(rank=2)),
    "checkpointing": replace(CONFIG, gradient_checkpointing=True),
}


def run(start: Path, out: Path, *, kind: str = "full", stages: int = 2, seed_of_rows: int = 1) -> None:
    """`out`/1 and, from it, `out`/2. Thirteen sequences: two ranks do not have the same number of passes."""
    for stage in range(1, stages + 1):
        rows = random_sequences(13, seed=seed_of_rows + stage - 1)
        target = out / str(stage)
        train(
            model_folder=start,
            out=target,
            sequences=rows,
            config=CONFIGS.get(kind, CONFIG),
            temperature=0.9,
            seed=5,
            replicas=2 if kind == "hsdp" else 1,
        )
        start = target


if __name__ == "__main__":
    if flag("ACCELERATE_USE_DEEPSPEED"):
        import deepspeed

        deepspeed.ops.__compatible_ops__ = {}  # Gloo adds: DeepSpeed's own kernel takes a minute to compile
    words = iter(sys.argv[1:])
    for start, out, kind in zip(words, words, words, strict=True):
        run(Path(start), Path(out), kind=kind)
    leave(0)
