"""Clients that only connect: half requests, more of them than there are places, and a system without descriptors."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import pytest
from rla_bridges.serving import connections, openenv_server
from rla_bridges.serving.connections import Connections
from rla_bridges.serving.openenv_server import ServerLimits

from bridges_tests.serving.counting import Talk, said, talked

HALF = b"GET /health HTTP/1.1\r\nHost: x\r\nX-Never: "
BODY = b"POST /alfworld/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"


async def begun(end: Talk, data: bytes) -> asyncio.StreamReader:
    """What the server says to a client that sends `data` and then nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(end.url.rpartition(":")[2]))
    writer.write(data)
    await writer.drain()
    kept.append(writer)
    return reader


kept: list[asyncio.StreamWriter] = []


@pytest.fixture(autouse=True)
def let_go(monkeypatch: pytest.MonkeyPatch) -> Any:
    """At its end a server does not wait long for the clients of these tests, which never hang up."""
    monkeypatch.setattr(openenv_server, "STOPPING", 0.1)
    yield
    kept.clear()


async def healthy(end: Talk) -> int:
    async with asyncio.timeout(5), end.http.get(f"{end.url}/health") as answer:
        return answer.status


def test_a_client_that_sends_half_a_request_is_hung_up_on() -> None:
    async def talk(end: Talk) -> Any:
        reader = await begun(end, HALF)
        return await asyncio.wait_for(reader.read(), 5), await healthy(end)

    assert talked(talk, connections=Connections(most=9, head_s=0.05)) == (b"", 200)


def test_half_requests_make_room_for_whole_ones() -> None:
    async def talk(end: Talk) -> Any:
        readers = [await begun(end, HALF) for _ in range(12)]
        found = await healthy(end)
        return found, sum(reader.at_eof() for reader in readers)

    answered, dropped = talked(talk, connections=Connections(most=4))
    assert answered == 200 and dropped >= 8


WHOLE = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
UPGRADE = b"GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
SLOW = {
    "idle after a request": WHOLE,
    "half of a second request": WHOLE + b"GET /he",
    "a body that nobody reads": WHOLE[:-2] + b"Content-Length: 99\r\n\r\n{",
    "answers that it does not read": b"GET /schema HTTP/1.1\r\nHost: x\r\n\r\n" * 500,
    "a session too many": UPGRADE + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
}


@pytest.mark.parametrize("data", SLOW.values(), ids=SLOW)
def test_connections_without_a_session_make_room_and_sessions_stay(data: bytes) -> None:
    async def talk(end: Talk) -> Any:
        async with end.session() as socket:
            for _ in range(8):
                await (await begun(end, data)).readline()
            return await healthy(end), (await said(socket, {"type": "reset", "data": {}}))["type"]

    limits = ServerLimits(sessions=1)
    assert talked(talk, limits, connections=Connections(most=4)) == (200, "observation")


def test_what_clients_do_wrong_leaves_no_traceback_in_the_log(logged: list[str]) -> None:
    async def talk(end: Talk) -> Any:
        for data in (b"\0" * 99, b"GET /health HTTP/1.1\r\nX: " + b"a" * 10**5, WHOLE[:-2] + b"X: 1\r\n" * 9999):
            await asyncio.wait_for((await begun(end, data)).readline(), 5)
        return await healthy(end)

    assert (talked(talk), logged) == (200, [])


def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openenv_server, "BODY_S", 0.05)

    async def talk(end: Talk) -> Any:
        return await asyncio.wait_for((await begun(end, BODY)).readline(), 5)

    assert talked(talk).startswith(b"HTTP/1.1 408 ")


def test_a_system_without_descriptors_is_asked_again_after_a_pause_and_a_line(
    monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    monkeypatch.setattr(connections, "PAUSE_S", 0.02)
    refusals, real = [errno.EMFILE] * 3, asyncio.SelectorEventLoop.sock_accept

    async def talk(end: Talk) -> Any:
        return await healthy(end)

    async def refusing(loop: Any, listening: socket.socket) -> Any:
        if refusals:
            raise OSError(refusals.pop(), "Too many open files")
        return await real(loop, listening)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", refusing)
    assert talked(talk) == 200
    assert logged == ["no connection is taken for 0.02 s: Too many open files"] * 3


@pytest.mark.parametrize(
    ("limits", "raised", "share"),
    [((1024, 4096), 4096, 2048 // 64), ((1024, 1 << 20), 1 << 16, 100 + 2), ((64, 64), 64, connections.LEAST)],
)
def test_servers_share_the_descriptors_that_the_system_allows(
    limits: tuple[int, int], raised: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [limits]
    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: held[-1])
    monkeypatch.setattr(connections.resource, "setrlimit", lambda _, both: held.append(both))
    assert connections.share_of_connections(100, 64) == share
    assert held[-1] == (raised, limits[1])
