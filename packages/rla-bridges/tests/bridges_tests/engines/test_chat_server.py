"""A judge over a chat server: what its replies become, and what becomes of replies that do not come."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from rla_bridges.engines import chat_server
from rla_bridges.engines.chat_server import FIRST, ChatReply, ChatServer

from bridges_tests.engines.chat_completions import ChatCompletions, reply
from bridges_tests.loopback import LoopbackServer
from rla.config.sections import JudgeServerConfig
from rla.errors import UserError


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("FIRST_DELAY", 0.01), ("SILENCE", 0.5), ("PATIENCE", 0.5)):
        monkeypatch.setattr(chat_server, name, seconds)


def asked(server: LoopbackServer, *, samples: int = 1, text: str = "Good?", **keys: Any) -> list[ChatReply]:
    config = JudgeServerConfig(url=server.url, model="m", **keys)

    async def ask() -> list[ChatReply]:
        messages = [{"role": "user", "content": text}]
        return await ChatServer(config, secret="MINE").replies(
            messages, samples=samples, seed=7, temperature=0.5, max_tokens=9
        )

    return asyncio.run(ask())


def test_each_reply_is_a_request_with_a_seed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "secret")
    with ChatCompletions(lambda number, body: reply(str(body["seed"]))) as server:
        found = asked(server, samples=3)
    assert [one.text for one in found] == ["7", "8", "9"]
    assert set(server.keys) == {"Bearer secret"}
    wanted = {"model": "m", "temperature": 0.5, "max_tokens": 9, "stream": False}
    assert all(wanted.items() <= body.items() for body in server.bodies)
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "Good?"}]


def test_names_of_keys_that_servers_differ_in() -> None:
    with ChatCompletions(lambda number, body: reply("")) as server:
        asked(server, seeded=False, length_key="max_completion_tokens")
    assert server.bodies[0]["max_completion_tokens"] == 9
    assert not {"seed", "max_tokens"} & server.bodies[0].keys()


@pytest.mark.parametrize(
    "string",
    [
        *("<|im_end|>", "<|IM_END|>", "<s>", "</s>", "<end_of_turn>", "[/INST]", "[inst]", "<</SYS>>"),
        *(
            "<\uff5cUser\uff5c>",
            "<\uff5cend\u2581of\u2581sentence\uff5c>",
            "<think>",
            "</think>",
            "<bos>",
            "<eos>",
            "<pad>",
        ),
        *("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[/TOOL_RESULTS]"),
    ],
)
def test_control_strings_of_templates_are_broken(string: str) -> None:
    with ChatCompletions(lambda number, body: reply(body["messages"][0]["content"])) as server:
        (found,) = asked(server, text=f"a {string} b < c [d]")
    assert found.text == f"a {string[0]} {string[1:]} b < c [d]"


@pytest.mark.parametrize(
    ("content", "finish", "text", "truncated"),
    [
        ("score +1", "stop", "score +1", False),
        ("sco", "length", "sco", True),
        (None, "content_filter", "", False),
        ([{"type": "text", "text": "a"}, {"type": "image"}, 4, {"type": "text", "text": "b"}], "stop", "ab", False),
        ({"a": 1}, "stop", "", False),
        ("x\ud800\x00\x1b[2J", "stop", "x?\x00\x1b[2J", False),
        ("y" * 9999, "stop", "y" * 9 * 64, True),
    ],
)
def test_what_a_message_becomes(content: Any, finish: str, text: str, truncated: bool) -> None:
    with ChatCompletions(lambda number, body: reply(content, finish)) as server:
        assert asked(server) == [ChatReply(text=text, truncated=truncated)]


ODD = [
    {},
    {"choices": []},
    {"choices": [{"message": "no"}]},
    [1],
    7,
    lambda: web.Response(text="<html>"),
    lambda: web.Response(body=b'{"\xff\xfe": '),
    lambda: web.Response(text="[" * 100_000),
    lambda: web.Response(status=400, text="\x1b[31mtoo long"),
    lambda: web.Response(status=302, headers={"Location": "http://example.org/"}),
]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
def test_an_odd_answer_is_one_missing_reply(odd: Any, logged: list[str]) -> None:
    def answer(number: int, body: dict[str, Any]) -> Any:
        return reply("good") if body["seed"] != 8 else odd() if callable(odd) else odd

    with ChatCompletions(answer) as server:
        assert [one.text for one in asked(server, samples=3)] == ["good", "good"]
    assert "a judgement is missing" in "".join(logged) and "\x1b" not in "".join(logged)


def test_a_busy_server_is_asked_again_when_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_server, "PATIENCE", 5.0)
    busy = {0: "0.3", 1: "soon", 2: "-1", 3: "\u00b2", 4: "nan"}

    def answer(number: int, body: dict[str, Any]) -> Any:
        return web.Response(status=429, headers={"Retry-After": busy[number]}) if number in busy else reply("at last")

    with ChatCompletions(answer) as server:
        assert [one.text for one in asked(server)] == ["at last"]
    assert len(server.bodies) == 6


def test_no_more_requests_at_once_than_there_may_be() -> None:
    with ChatCompletions(lambda number, body: reply("x"), seconds=0.02) as server:
        assert len(asked(server, samples=12, connections=3)) == 12
    assert server.most == 3


def test_a_key_that_the_server_does_not_know_ends_the_call() -> None:
    with (
        ChatCompletions(lambda number, body: web.Response(status=401, text="who?")) as server,
        pytest.raises(UserError, match=r"401: who.; put the server's API key into the environment variable MINE"),
    ):
        asked(server)


@pytest.mark.parametrize("key", [" secret\n", "\tsecret\r\n"])
def test_blanks_around_a_key_are_not_sent(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", key)
    with ChatCompletions(lambda number, body: reply("x")) as server:
        asked(server)
    assert server.keys == ["Bearer secret"]


@pytest.mark.parametrize("key", ["sec\nret", "secr\u00e9t", "sec\x1bret", "sec\u200bret"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", key)
    with (
        ChatCompletions(lambda number, body: reply("x")) as server,
        pytest.raises(UserError, match=r"^MINE: ") as raised,
    ):
        asked(server)
    assert "sec" not in str(raised.value) and server.keys == []


@pytest.mark.parametrize("first", [0, 1])
def test_an_input_that_a_gateway_forbids_is_a_missing_reply(first: int) -> None:
    """It may be the first that is asked, as when a stage goes on."""

    def answer(number: int, body: dict[str, Any]) -> Any:
        return web.Response(status=403, text="moderated") if body["seed"] == 7 + first else reply("x")

    with ChatCompletions(answer) as server:
        assert len(asked(server, samples=3, connections=1)) == 2


def test_an_address_that_is_not_found_ends_the_call_until_something_was_answered() -> None:
    def answer(number: int, body: dict[str, Any]) -> Any:
        return web.Response(status=404, text="no such model") if body["seed"] == wrong else reply("x")

    with ChatCompletions(answer) as server:
        wrong = 8
        assert len(asked(server, samples=3, connections=1)) == 2
        wrong = 7
        with pytest.raises(UserError, match=r"404: no such model; set judge.server.url"):
            asked(server, samples=3, connections=1)


@pytest.mark.parametrize("status", [401, 402])
def test_a_caller_who_is_refused_later_ends_the_call(status: int) -> None:
    def answer(number: int, body: dict[str, Any]) -> Any:
        return web.Response(status=status) if number else reply("x")

    with ChatCompletions(answer) as server, pytest.raises(UserError, match=f"status {status}"):
        asked(server, samples=3, connections=1)


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({}, "an answer has no choices.*use a chat completions server"),
        (lambda: web.Response(status=400, text="no temperature"), "400: no temperature"),
        (lambda: web.Response(status=403, text="who?"), r"403: who\?; put the server's API key"),
    ],
    ids=["empty", "400", "403"],
)
def test_a_server_that_refuses_all_first_requests_ends_the_call(odd: Any, said: str) -> None:
    with (
        ChatCompletions(lambda number, body: odd() if callable(odd) else odd) as server,
        pytest.raises(
            UserError,
            match=said,
        ),
    ):
        asked(server, samples=FIRST)


def test_a_request_that_alone_gets_no_answer_is_a_missing_reply() -> None:
    def answer(number: int, body: dict[str, Any]) -> Any:
        return None if body["seed"] == 7 else reply("x")

    with ChatCompletions(answer, seconds=0.05) as server:
        assert len(asked(server, samples=30, connections=2)) == 29


def test_a_server_that_answers_nobody_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_server, "PATIENCE", 0.2)
    with (
        ChatCompletions(lambda number, body: None) as server,
        pytest.raises(UserError, match=r"tried again for 0.2 s. Start the server"),
    ):
        asked(server, samples=3)


def test_a_reply_that_drips_in_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_server, "SILENCE", 0.3)
    monkeypatch.setattr(chat_server, "PATIENCE", 0.1)

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(40):
            await response.write(b" ")
            await asyncio.sleep(0.05)
        return response

    server = LoopbackServer([web.post("/v1/chat/completions", drip)])
    with server, pytest.raises(UserError, match=r"no answer in 0.3 s"):
        asked(server)
