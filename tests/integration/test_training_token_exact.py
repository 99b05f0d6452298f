"""What the engine sampled is what the trainer scores: from tokens over shard rows to the first update."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from rla.config.sections import GeneratorConfig  # noqa: E402
from rla.config.training import TrainConfig  # noqa: E402
from rla.llm.base import Completion, Request  # noqa: E402
from rla.llm.factory import make_generator  # noqa: E402
from rla.training.loop import train  # noqa: E402
from rla.training.sequences import policy_sequences, reward_model_sequences  # noqa: E402
from tests.integration.episodes import TEMPERATURE, play  # noqa: E402
from tests.unit.training.builders import reward, tiny_model  # noqa: E402

CONTEXT = GeneratorConfig(max_sequences=4, context=128)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny", seed=5)


def judge(model: Path) -> list[Completion]:
    engine, _ = make_generator(CONTEXT, model=model, seed=0)
    request = Request(prompt_ids=[50, 51, 52], max_tokens=8, temperature=TEMPERATURE, seed=1, samples=4)
    return asyncio.run(engine.generate(request))


def test_episodes(model: Path, tmp_path: Path) -> None:
    trajectories = play(model, config=CONTEXT, episodes=8)
    rewards = [reward(str(number), step, (-1.0) ** number) for number in range(8) for step in range(3)]
    sequences = policy_sequences(trajectories, rewards)
    forced = sum(len(ids) == 1 for row in trajectories for ids in row["segments"][0]["allowed"])
    sampled = sum(sum(row["segments"][0]["sampled"]) for row in trajectories)
    assert forced > 0
    metrics = train(
        model_folder=model,
        out=tmp_path / "out",
        sequences=sequences,
        config=TrainConfig(lr=1e-3, updates=1, kl_coef=0.0),
        temperature=TEMPERATURE,
        seed=0,
    )
    assert metrics["loss_tokens"] == sampled - forced
    assert metrics["sampler_gap_max"] < 1e-4
    assert metrics["ratio_max"] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("share_prompts", [True, False])
def test_judgements(share_prompts: bool, model: Path, tmp_path: Path) -> None:
    judgements = [
        {"token_ids": one.token_ids, "logprobs": one.logprobs, "allowed": one.allowed} for one in judge(model)
    ]
    score = {"trajectory_id": "t", "step": 0, "prompt_ids": [50, 51, 52], "judgements": judgements}
    rewards = [reward("t", 0, 1.0 - 2 * (index % 2), judgement=index) for index in range(4)]
    [shared] = reward_model_sequences([score], rewards)
    metrics = train(
        model_folder=model,
        out=tmp_path / "out",
        sequences=[shared] if share_prompts else shared.texts(),
        config=TrainConfig(lr=1e-3, updates=1, kl_coef=0.0),
        temperature=TEMPERATURE,
        seed=0,
    )
    assert metrics["sequences"] == (1 if share_prompts else 4)
    assert metrics["sampler_gap_max"] < 1e-4
