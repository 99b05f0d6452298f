"""vLLM's own server behind `backend: server`: the tokens and log-probabilities of the engine in this process."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from rla_bridges.engines.params import ServerEngine

from rla.config.sections import GeneratorConfig, ModelConfig
from rla.errors import UserError
from rla.llm.base import Completion, Generator, Request, TokenTrie
from rla.llm.chat import ChatFormat
from rla.llm.factory import make_generator
from rla.models.init import init_model, new_tokenizer
from rla.models.load import load_tokenizer

pytestmark = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")

COMMANDS = ["go to cabinet 3", "go to desk 1", "go to desk 2", "put mug 1 in/on desk 2"]
CONTEXT = 128
STARTING = 300  # seconds
IN_PROCESS = GeneratorConfig(backend="vllm", context=CONTEXT, max_sequences=8)
WHOLE_PROMPTS = ("--no-enable-chunked-prefill", "--max-num-batched-tokens", "8192")  # what seeds need without a GPU
TRAINING_FLAGS = ("--logprobs-mode", "processed_logprobs", "--generation-config", "vllm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("models") / "tiny"
    # A head width of 32: the smallest that vLLM's attention takes.
    config = ModelConfig(hidden_size=128, layers=2, heads=4, intermediate_size=128, context=CONTEXT)
    init_model(target, tokenizer=new_tokenizer(COMMANDS, context=config.context), config=config, seed=1)
    return target


@contextmanager
def serving(folder: Path, log: Path, *flags: str) -> Iterator[GeneratorConfig]:
    """`vllm serve` on a free port; the config that reaches it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # As a module: the `vllm` program asks for the version of a distribution that the CPU build does not have.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(CONTEXT), "--max-num-seqs", "8"]
    command += ["--dtype", "float32", "--enforce-eager", *WHOLE_PROMPTS, *flags]
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1"},
        )
        try:
            wait_for(f"http://127.0.0.1:{port}/health", process, log)
            yield replace(IN_PROCESS, backend="server", own=ServerEngine(url=f"http://127.0.0.1:{port}/v1"))
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(STARTING):
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(1)
    pytest.fail(log.read_text()[-3000:])


def ask(generator: Generator, requests: list[Request]) -> list[list[Completion]]:
    async def all_of_them() -> list[list[Completion]]:
        return list(await asyncio.gather(*(generator.generate(request) for request in requests)))

    try:
        return asyncio.run(all_of_them())
    finally:
        generator.close()


def test_replies_are_those_of_the_engine_in_this_process(folder: Path, tmp_path: Path) -> None:
    chat = ChatFormat(load_tokenizer(folder))
    prompt = chat.first([{"role": "user", "content": "go to desk 1"}])
    trie = TokenTrie([[*chat.encode(command), chat.end_id] for command in COMMANDS])
    free = Request(prompt_ids=prompt, max_tokens=40, temperature=0.7, seed=11, samples=8)
    hot = [replace(free, seed=seed, temperature=2.0) for seed in range(4)]  # long enough for stop tokens to be drawn
    commands = replace(free, max_tokens=20, allowed=trie, samples=3)
    requests = [*hot, free, commands, replace(free, temperature=0.0, samples=1)]

    with serving(folder, tmp_path / "log", *TRAINING_FLAGS) as config:
        served = ask(make_generator(config, model=folder, seed=0)[0], requests)
    here = ask(make_generator(IN_PROCESS, model=folder, seed=0)[0], requests)

    stopped = [reply.token_ids[-1] in chat.stop_ids for replies in here[: len(hot)] for reply in replies]
    assert any(stopped) and not all(stopped)
    for ours, theirs in zip(here, served, strict=True):
        assert [reply.token_ids for reply in theirs] == [reply.token_ids for reply in ours]
        assert [reply.allowed for reply in theirs] == [reply.allowed for reply in ours]
        assert [reply.finish_reason for reply in theirs] == [reply.finish_reason for reply in ours]
        for our, their in zip(ours, theirs, strict=True):
            assert their.logprobs == pytest.approx(our.logprobs, abs=1e-3)


def test_a_server_of_raw_log_probabilities_may_evaluate_and_not_make_training_data(
    folder: Path, tmp_path: Path
) -> None:
    request = Request(prompt_ids=[5, 6, 7], max_tokens=4, temperature=0.7, seed=1)
    with serving(folder, tmp_path / "log") as config:
        with pytest.raises(UserError, match=rf"generator\.own\.url {config.own.url}: .*processed_logprobs"):
            make_generator(config, model=folder, seed=0)
        ((reply,),) = ask(make_generator(config, model=folder, seed=0, training=False)[0], [request])
        with pytest.raises(UserError, match="start it with --max-model-len 256"):
            make_generator(replace(config, context=256), model=folder, seed=0, training=False)
    assert len(reply.token_ids) == 4
