"""What each rank of the test runs: `train_in_ranks.py START OUT UPDATES`."""

import sys
from pathlib import Path

from rla.config.sections import TrainConfig
from rla.training.loop import train
from tests.unit.training.builders import random_sequences

CONFIG = TrainConfig(lr=1e-3, updates=3, kl_coef=0.1, entropy_coef=0.01, tokens_per_batch=64, threads=1, old="trainer")


def run(start: Path, out: Path) -> None:
    train(model_folder=start, out=out, sequences=random_sequences(13), config=CONFIG, temperature=0.9, seed=5)


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]))
