"""One screen for one at a time, and nothing left of calls that are cancelled."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from rla_screens.desktop.leases import lease_of_address
from rla_screens.desktop.machine_pool import MachinePool
from rla_screens.desktop.machines import GuestAddress
from rla_screens.desktop.official import OfficialMetrics
from rla_screens.desktop.params import DesktopParams
from rla_screens.desktop.remote import RemoteMachine, screen_of_address

from rla.errors import UserError

PLACE = "http://Localhost:5000/"
HOLDER = """
import sys
from rla_screens.desktop.leases import lease_of_address
lease = lease_of_address(sys.argv[1])
print("held" if lease else "refused", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    return tmp_path


@contextmanager
def holder(address: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which has the lease."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLDER, address]
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, env=os.environ | {"TMPDIR": str(folder)}
    ) as held:
        assert held.stdout is not None and held.stdout.readline() == "held\n"
        try:
            yield held
        finally:
            held.kill()


@asynccontextmanager
async def guest() -> AsyncIterator[str]:
    async def version(request: web.Request) -> web.Response:
        return web.json_response({"guest": "rla"})

    served = web.Application()
    served.router.add_get("/rla/version", version)
    async with TestServer(served) as server:
        yield str(server.make_url(""))


def test_an_address_that_another_process_uses_is_refused_and_is_free_when_that_is_killed(folder: Path) -> None:
    with holder(screen_of_address(PLACE), folder) as other:
        with pytest.raises(
            UserError, match=r"addresses: http://Localhost:5000 is in use by another stage.*name another"
        ):
            asyncio.run(MachinePool(DesktopParams(machine="remote", addresses=(PLACE,), start_s=0.1)).take())
        other.kill()
        other.wait()
        lease = lease_of_address(screen_of_address(PLACE))
        assert lease is not None
        lease.end()


def test_two_pools_of_one_process_take_turns_at_an_address() -> None:
    async def worked() -> list[str]:
        async with guest() as url:
            own, said = DesktopParams(machine="remote", addresses=(url,), start_s=10.0), list[str]()
            one, other = MachinePool(own), MachinePool(own)
            first = await one.take()
            waiting = asyncio.create_task(other.take())
            await asyncio.sleep(0.05)
            said.append("waits" if not waiting.done() else "does not wait")
            await one.give(first)
            second = await waiting
            said.append("has it")
            await other.give(second)
            await asyncio.gather(one.close(), other.close())
            return said

    assert asyncio.run(worked()) == ["waits", "has it"]


def test_a_pool_that_takes_an_address_again_and_again_lets_another_in() -> None:
    async def worked() -> int:
        async with guest() as url:
            own = DesktopParams(machine="remote", addresses=(url,), start_s=2.0)
            one, other, taken = MachinePool(own), MachinePool(own), 0
            again = asyncio.create_task(one.take())
            await again
            waiting = asyncio.create_task(other.take())
            while not waiting.done():
                await asyncio.sleep(0.05)
                await one.give(await again)
                again, taken = asyncio.create_task(one.take()), taken + 1
                await asyncio.wait((again, waiting), return_when=asyncio.FIRST_COMPLETED)
            await other.give(await waiting)
            await one.give(await again)
            return taken

    assert asyncio.run(worked()) <= 1


def test_a_stage_that_waits_for_an_address_and_is_cancelled_keeps_nobody_out(folder: Path) -> None:
    async def worked() -> None:
        with holder(screen_of_address(PLACE), folder):
            machine = RemoteMachine(GuestAddress(url=PLACE), longest_s=30.0)
            waiting = asyncio.create_task(machine.start())
            await asyncio.sleep(0.05)
            waiting.cancel()
            await asyncio.wait((waiting,))
        lease = lease_of_address(f"{screen_of_address(PLACE)} next")
        assert lease is not None
        lease.end()

    asyncio.run(worked())


def test_a_machine_that_does_not_answer_gives_its_lease_back() -> None:
    machine = RemoteMachine(GuestAddress(url="http://127.0.0.1:9"), longest_s=1.0)
    with pytest.raises(Exception, match="did not answer"):
        asyncio.run(machine.start())
    lease = lease_of_address(screen_of_address("http://127.0.0.1:9"))
    assert lease is not None
    lease.end()


class Slow:
    """A machine that takes its time, and says what becomes of it."""

    address = GuestAddress(url="http://x")

    def __init__(self, said: list[str]) -> None:
        self.said = said

    async def start(self) -> None:
        self.said.append("starts")
        await asyncio.sleep(0.2)

    async def stop(self) -> None:
        await asyncio.sleep(0.02)
        self.said.append("stopped")

    async def reset(self) -> None:
        raise AssertionError

    def drop(self) -> None:
        raise AssertionError


def slow_pool(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> MachinePool:
    monkeypatch.setattr("rla_screens.desktop.machine_pool.machine_makers", lambda own: [lambda: Slow(said)])
    return MachinePool(DesktopParams())


def test_a_machine_that_was_starting_for_a_cancelled_call_is_stopped_and_its_seat_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def worked() -> list[str]:
        said: list[str] = []
        pool = slow_pool(monkeypatch, said)
        cancelled = asyncio.create_task(pool.take())
        await asyncio.sleep(0.1)
        cancelled.cancel()
        await asyncio.wait((cancelled,))
        await asyncio.wait_for(pool.take(), 5)
        return said

    assert asyncio.run(worked()) == ["starts", "stopped", "starts"]


def test_a_machine_is_stopped_though_the_call_that_gives_it_back_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    async def worked() -> list[str]:
        said: list[str] = []
        pool = slow_pool(monkeypatch, said)
        machine = await pool.take()
        giving = asyncio.create_task(pool.give(machine))
        await asyncio.sleep(0)
        giving.cancel()
        await asyncio.wait((giving,))
        await asyncio.wait_for(pool.take(), 5)
        return said

    assert asyncio.run(worked()) == ["starts", "stopped", "starts"]


ANSWERS = """#!{python}
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    time.sleep(0.0 if "names" in asked else asked["options"]["wait"])
    print(json.dumps({{"names": ["m"]}} if "names" in asked else {{"score": asked["result"]["value"]}}), flush=True)
"""


def test_the_answer_to_a_cancelled_question_is_never_taken_for_another_s(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(ANSWERS.format(python=sys.executable))
    python.chmod(0o755)

    async def worked() -> float:
        metrics = OfficialMetrics(str(python))
        await metrics.known()
        first = asyncio.create_task(metrics.score("m", 1.0, None, {"wait": 0.3}, has_expected=False))
        await asyncio.sleep(0.1)
        first.cancel()
        await asyncio.wait((first,))
        try:
            return await metrics.score("m", 0.0, None, {"wait": 0}, has_expected=False)
        finally:
            await metrics.close()

    assert asyncio.run(worked()) == 0.0


def test_one_screen_is_not_named_twice() -> None:
    assert screen_of_address("http://LOCALHOST/") == screen_of_address("http://127.0.0.1:80")
    assert screen_of_address("http://a:5000") != screen_of_address("http://a:5001")


SLOW_DOCKER = """#!/bin/sh
case $1 in
  run) echo begun >> {log}; sleep 0.5; echo created >> {log} ;;
  rm) echo removed >> {log} ;;
esac
"""


def test_a_container_that_was_starting_for_a_cancelled_call_is_removed_once_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    (tmp_path / "docker").write_text(SLOW_DOCKER.format(log=log))
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    async def worked() -> None:
        pool = MachinePool(DesktopParams(machine="docker", image="img"))
        starting = asyncio.create_task(pool.take())
        while not log.exists():
            await asyncio.sleep(0.02)
        starting.cancel()
        await asyncio.wait((starting,))

    asyncio.run(worked())
    assert log.read_text().split() == ["begun", "created", "removed"]
