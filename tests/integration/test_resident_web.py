"""The resident engine over TCP: the completions of the engine itself, and refusals of what it does not do."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from rla.config.sections import GeneratorConfig
from rla.llm.base import Completion, FinishReason, Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import make_generator, make_transformers
from rla.llm.resident.seats import Seats
from rla.llm.resident.web import application, served_model
from rla.llm.trie import TokenTrie
from rla.models.load import load_tokenizer
from tests.unit.training.builders import tiny_model

SETTINGS = GeneratorConfig(context=128, threads=1, max_sequences=8)
PROMPT = [5, 6, 7, 8]
ASKED = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0.7, "seed": 3, "n": 2, "logprobs": 0}
DEADLINE = 60.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "0")


def ask(model: Path, *bodies: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """Status and answer of each body, all asked for at once."""

    async def main() -> list[tuple[int, dict[str, Any]]]:
        seats = Seats()
        served = served_model(str(model), SETTINGS, 0, seats=seats, touch=lambda: None)
        async with TestClient(TestServer(application(served))) as client:

            async def one(body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
                async with client.post("/v1/completions", json=body) as answer:
                    return answer.status, await answer.json()

            return list(await asyncio.gather(*map(one, bodies)))

    return asyncio.run(main())


def direct(model: Path, **changes: Any) -> list[Completion]:
    """What the engine answers to the same request."""
    stop_ids = ChatFormat(load_tokenizer(model)).stop_ids
    request = {"prompt_ids": PROMPT, "max_tokens": 12, "temperature": 0.7, "seed": 3, "samples": 2, **changes}
    return asyncio.run(make_transformers(SETTINGS, model, stop_ids).generate(Request(**request)))


def test_token_ids_log_probabilities_and_finish_reason_are_the_engines(model: Path) -> None:
    stops = sorted(ChatFormat(load_tokenizer(model)).stop_ids)
    ((status, answer),) = ask(model, {**ASKED, "return_token_ids": True, "stop_token_ids": stops, "top_p": 1.0})
    assert status == 200
    for index, (choice, completion) in enumerate(zip(answer["choices"], direct(model), strict=True)):
        assert choice["index"] == index
        assert choice["token_ids"] == completion.token_ids
        assert choice["logprobs"]["token_logprobs"] == completion.logprobs
        assert choice["finish_reason"] == completion.finish_reason
    assert answer["usage"]["prompt_tokens"] == len(PROMPT)


def test_one_token_can_be_restricted(model: Path) -> None:
    body = {**ASKED, "n": 1, "max_tokens": 1, "allowed_token_ids": [9, 4, 11], "return_token_ids": True}
    ((status, answer),) = ask(model, body)
    (completion,) = direct(model, samples=1, max_tokens=1, allowed=TokenTrie([[9], [4], [11]]))
    (choice,) = answer["choices"]
    assert status == 200
    assert choice["token_ids"] == completion.token_ids
    assert choice["logprobs"]["token_logprobs"] == completion.logprobs
    assert choice["finish_reason"] == FinishReason.LENGTH


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"prompt": "text"}, 400, "list of token ids"),
        ({"top_p": 0.9}, 400, "top_p"),
        ({"stream": True}, 400, "stream"),
        ({"temperature": -1.0}, 400, "temperature"),
        ({"temperature": "hot"}, 400, "hot"),
        ({"max_tokens": 500}, 400, "exceed the context of 128"),
        ({"allowed_token_ids": [4]}, 400, "max_tokens: 1"),
        ({"stop_token_ids": [17]}, 400, "stop_token_ids"),
        ({"prompt": []}, 400, "needs a prompt"),
        ({"model": "another"}, 404, "not served"),
    ],
)
def test_what_it_does_not_do_is_refused(model: Path, change: dict[str, Any], status: int, says: str) -> None:
    ((found, answer),) = ask(model, {**ASKED, **change})
    assert found == status
    assert says in answer["error"]["message"]


def test_the_command_serves_a_checkpoint_on_a_port(model: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "s").mkdir(mode=0o700)
    place = ["--socket", str(tmp_path / "s/socket")]
    (tmp_path / "params.yaml").write_text("generator: {context: 128, threads: 1}")
    words = ["start", *place, "--params", "params.yaml", "--port", str(port), "--model", str(model)]

    def rla(*words: str) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-m", "rla", "serve", *words], cwd=tmp_path, env=environment, check=True)

    def get(path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        call = urllib.request.Request(f"http://127.0.0.1:{port}/v1/{path}", data=data)
        with urllib.request.urlopen(call, timeout=DEADLINE) as answer:
            return json.load(answer)

    rla(*words, "--parent", str(os.getpid()))
    try:
        end = time.monotonic() + DEADLINE
        while True:
            try:
                (card,) = get("models")["data"]
                break
            except urllib.error.URLError:
                assert time.monotonic() < end
                time.sleep(0.1)
        assert (card["root"], card["max_model_len"]) == (str(model), 128)
        answer = get("completions", {**ASKED, "model": card["id"], "return_token_ids": True})
        assert [choice["token_ids"] for choice in answer["choices"]] == [one.token_ids for one in direct(model)]
        settings = GeneratorConfig(backend="server", server=f"http://127.0.0.1:{port}/v1", context=128)
        client, _ = make_generator(settings, model=model, seed=0, training=True)
        request = Request(prompt_ids=PROMPT, max_tokens=12, temperature=0.7, seed=3, samples=2)
        assert asyncio.run(client.generate(request)) == direct(model)
    finally:
        rla("stop", *place)
