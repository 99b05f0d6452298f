"""Rows, sequences and a tiny real model for the tests of training."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rla.cli.progress import LineProgress
from rla.config.sections import ModelConfig
from rla.config.training import LoraConfig, TrainConfig
from rla.pipeline import StageContext
from rla.store.shards import Origin, ShardWriter
from rla.training.sequences import TrainingSequence
from stages import STAGES
from tests.unit.builders import configured

WORDS = "go to cabinet drawer shelf take put open close mug apple book with in/on"
SIZES = ModelConfig(hidden_size=16, layers=2, heads=2, intermediate_size=32, context=128)


def tiny_model(folder: Path, *, seed: int = 0) -> Path:
    """A Qwen3 of 16 dimensions and about 120 words, as a Hugging Face folder."""
    from rla.models.init import init_model, new_tokenizer

    init_model(folder, tokenizer=new_tokenizer([WORDS], context=SIZES.context), config=SIZES, seed=seed)
    return folder


def segment(*tokens: int | tuple[int, float, list[int]]) -> dict[str, Any]:
    """A segment row: a bare id is context, (id, log-probability, allowed ids) was sampled."""
    sampled = [token for token in tokens if isinstance(token, tuple)]
    return {
        "token_ids": [token[0] if isinstance(token, tuple) else token for token in tokens],
        "sampled": [isinstance(token, tuple) for token in tokens],
        "logprobs": [token[1] if isinstance(token, tuple) else 0.0 for token in tokens],
        "allowed": [token[2] for token in sampled],
    }


def step(*, start: int, end: int, segment: int = 0) -> dict[str, Any]:
    return {"segment": segment, "start": start, "end": end}


def trajectory(name: str, *, steps: list[dict[str, Any]], segments: list[dict[str, Any]]) -> dict[str, Any]:
    return {"trajectory_id": name, "steps": steps, "segments": segments}


def reward(name: str, step: int, advantage: float, **more: int) -> dict[str, Any]:
    return {"trajectory_id": name, "step": step, "advantage": advantage, **more}


def random_sequences(
    count: int, *, seed: int = 0, vocabulary: int = 100, restricted: bool = True
) -> list[TrainingSequence]:
    """Sequences of 8 to 40 tokens of which a few train; half of those were restricted to up to six ids."""
    rng = random.Random(seed)
    sequences = []
    for _ in range(count):
        ids = [rng.randrange(vocabulary) for _ in range(rng.randrange(8, 41))]
        positions = sorted(rng.sample(range(1, len(ids)), 4))
        allowed = [
            sorted({ids[position], *rng.sample(range(vocabulary), 5)}) if restricted and index % 2 else []
            for index, position in enumerate(positions)
        ]
        sequences.append(
            TrainingSequence(
                token_ids=ids[: positions[-1] + 1],
                positions=positions,
                logp=[rng.uniform(-4.0, -0.1) for _ in positions],
                allowed=allowed,
                advantages=[rng.gauss(0.0, 1.0) for _ in positions],
            )
        )
    return sequences


def adapter_run(folder: Path, *counts: int) -> Path:
    """`start`, a plain model, then LoRA checkpoints `1`, `2` and on, each trained from the one before on so many
    sequences; without any it is carried over.
    """
    from rla.training.loop import train

    lora = TrainConfig(lr=1e-2, updates=1, kl_coef=0.0, lora=LoraConfig(rank=2, alpha=4.0))
    before = tiny_model(folder / "start")
    for number, count in enumerate(counts, 1):
        out = folder / str(number)
        train(model_folder=before, out=out, sequences=random_sequences(count), config=lora, temperature=1.0, seed=0)
        before = out
    return folder


def call_stage(
    run: Path,
    *,
    iteration: int = 1,
    overrides: Sequence[str] = (),
    sequences: Callable[[], list[TrainingSequence]] = lambda: random_sequences(5),
) -> dict[str, Any]:
    """`train-policy` on sequences that are given, two updates an iteration."""
    from rla.training.stage import POLICY, train_stage

    data, rewards = run / "data", run / "rewards"
    if not data.exists():
        ShardWriter(data, "trajectories", Origin(config="", inputs={}, seed=0)).finish()
        ShardWriter(rewards, "policy_rewards", Origin(config="", inputs={}, seed=0)).finish()
    if not (run / "init").exists():
        tiny_model(run / "init/policy")
    ctx = StageContext(
        spec=next(spec for spec in STAGES if spec.name == "train-policy"),
        stages=STAGES,
        config=configured(*overrides),
        run=run,
        iteration=iteration,
        progress=LineProgress(io.StringIO()),
    )
    config = TrainConfig(updates=2, lr=1e-3)
    joining = POLICY._replace(make=lambda *_, **__: iter(sequences()))
    return train_stage(
        ctx, checkpoint="policy", config=config, temperature=1.0, joining=joining, shards=(data, rewards)
    )
