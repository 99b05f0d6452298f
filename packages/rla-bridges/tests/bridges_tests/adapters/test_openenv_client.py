"""Requests over HTTP: what is sent, and what a user is told about a server that is none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from rla_bridges.adapters.openenv_client import LARGEST_ANSWER, TOKEN, OpenEnvClient, base_url, read_answer

from bridges_tests.adapters.openenv_fake import FakeServer, observation, serving
from rla.errors import UserError


def fetched(server: FakeServer, path: str) -> Any:
    async def run() -> Any:
        async with serving(server) as url:
            client = OpenEnvClient(url, timeout=5.0)
            try:
                found = await client.fetch(path)
                await (await client.connect()).close()
                return found
            finally:
                await client.close()

    return asyncio.run(run())


@pytest.mark.parametrize("text", ["http://127.0.0.1:8000", "https://a.example/env/", "http://[::1]:80"])
def test_an_address_is_kept_without_its_last_slash(text: str) -> None:
    assert base_url(text) == text.rstrip("/")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:8000",
        "ftp://a",
        "http://",
        "http://u:p@a",
        "http://a:x",
        "http://a?b",
        "http://a#b",
        "http://[",
        "file:///etc",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"env\.own\.id is"):
        base_url(text)


def test_the_token_of_the_environment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeServer(lambda said: observation())
    monkeypatch.delenv(TOKEN, raising=False)
    fetched(server, "/schema")
    monkeypatch.setenv(TOKEN, "secret")
    fetched(server, "/schema")
    assert [headers.get("Authorization") for headers in server.headers] == [None] * 2 + ["Bearer secret"] * 2


def test_a_route_that_is_not_there_is_none() -> None:
    assert fetched(FakeServer(lambda said: None), "/list_environments") is None


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ("<html>", "not JSON; is it an OpenEnv server"),
        ("[" * 100_000, "not JSON; is it an OpenEnv server"),
        ('"' + "x" * LARGEST_ANSWER + '"', "longer than"),
        (web.HTTPInternalServerError(), "status 500; is it an OpenEnv server"),
        (web.HTTPFound("http://127.0.0.1:9/"), "status 302; is it an OpenEnv server"),
        (web.HTTPUnauthorized(), f"put the server's token into {TOKEN}"),
    ],
)
def test_an_answer_that_cannot_be_used_is_the_users_to_mend(found: Any, told: str) -> None:
    server = FakeServer(lambda said: None)
    server.routes["/schema"] = found
    with pytest.raises(UserError, match=told):
        fetched(server, "/schema")


def test_truth_counts_as_a_reward_as_it_does_in_the_protocols_own_package() -> None:
    assert read_answer('{"type": "observation", "data": {"observation": {}, "reward": true}}').reward == 1.0


def test_pings_are_answered_while_nobody_asks() -> None:
    """A policy may take longer for a reply than a server waits for a sign of life."""

    class Impatient(FakeServer):
        async def socket(self, request: web.Request) -> web.StreamResponse:
            socket = web.WebSocketResponse(heartbeat=0.1)
            await socket.prepare(request)
            await self.converse(socket)
            return socket

    async def run() -> None:
        async with serving(Impatient(lambda said: observation())) as url:
            client = OpenEnvClient(url, timeout=5.0)
            wire = await client.connect()
            await wire.ask("reset", {})
            await asyncio.sleep(0.6)
            await wire.ask("step", {"message": "still here"})
            await wire.close()
            await client.close()

    asyncio.run(run())
