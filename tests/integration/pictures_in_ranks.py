"""The training of one rank: `pictures_in_ranks.py START IMAGES VISION OUT ...` trains once for each pair of VISION and
OUT. Not every pass shows a picture.
"""

import sys
from pathlib import Path

from rla.config.training import TrainConfig
from rla.pictures.vision import load_vision
from rla.processes import leave
from rla.training.loop import train
from rla.training.sequences import TrainingSequence
from tests.seeing import png_of
from tests.unit.training.test_vision_inputs import FILES, sequence

CONFIG = {"lr": 1e-3, "updates": 2, "kl_coef": 0.1, "tokens_per_batch": 48, "old": "trainer"}


def rows(start: Path) -> list[TrainingSequence]:
    vision = load_vision(start)
    assert vision is not None
    shown = [sequence(vision, seed, [3, FILES[seed % 3], 4]) for seed in range(3)]
    return [*shown, *(sequence(vision, seed, [12 + seed]) for seed in range(6))]


def run(start: Path, out: Path, images: Path, *, vision: str) -> None:
    train(
        model_folder=start,
        out=out,
        sequences=rows(start),
        config=TrainConfig(**CONFIG, vision=vision),  # type: ignore[arg-type]
        temperature=0.9,
        seed=5,
        images=images,
    )


if __name__ == "__main__":
    assert png_of("red") in FILES
    start, images, *words = sys.argv[1:]
    for vision, out in zip(words[::2], words[1::2], strict=True):
        run(Path(start), Path(out), Path(images), vision=vision)
    leave(0)
