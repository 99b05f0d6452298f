"""The SandboxFusion client against a small server on this machine that answers as SandboxFusion does."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from rla_programs.execution import Call, ExitStatus, Job, Limits, Result, fusion
from rla_programs.execution.fusion import SandboxFusion

from rla.errors import UserError

Answer = Callable[[dict[str, Any]], Awaitable[web.Response]]


async def executed(body: dict[str, Any]) -> web.Response:
    """What the server does: the code in a folder with the files, and the files that are wanted back."""
    assert body["language"] == "python"
    with tempfile.TemporaryDirectory() as folder:
        for name, data in body.get("files", {}).items():
            Path(folder, name).write_bytes(base64.b64decode(data))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-c", body["code"], cwd=folder, stdin=-1, stdout=-1, stderr=-1
        )
        try:
            async with asyncio.timeout(body["run_timeout"]):
                out, err = await process.communicate(body["stdin"].encode())
        except TimeoutError:
            process.kill()
            await process.wait()
            return answer("Failed", {"status": "TimeLimitExceeded", "execution_time": body["run_timeout"]})
        files = {
            name: base64.b64encode(Path(folder, name).read_bytes()).decode()
            for name in body.get("fetch_files", [])
            if os.path.isfile(os.path.join(folder, name))
        }
    run = {"status": "Finished", "return_code": process.returncode, "execution_time": 0.1}
    run |= {"stdout": out.decode(), "stderr": err.decode()}
    return answer("Failed" if process.returncode else "Success", run, files)


def answer(
    status: str, run: dict[str, Any] | None, files: dict[str, str] | None = None, message: str = ""
) -> web.Response:
    return web.json_response({"status": status, "message": message, "run_result": run, "files": files or {}})


def results(job: Job, reply: Answer = executed) -> list[Result]:
    """The job's results from a server that answers with `reply`."""

    async def main() -> list[Result]:
        async def handle(request: web.Request) -> web.Response:
            return await reply(await request.json())

        app = web.Application()
        app.router.add_post("/run_code", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        sandbox = SandboxFusion(f"http://{host}:{port}/", connections=2)
        try:
            return await sandbox.run(job)
        finally:
            await sandbox.close()
            await runner.cleanup()

    return asyncio.run(main())


def test_stdin_stdout_and_exit_codes() -> None:
    source = "import sys\ntext = input()\nprint(text)\nsys.exit(len(text) - 2)"
    ok, failed, crashed = results(Job(source=source, stdin=("ab", "abc", "")))
    assert (ok.status, ok.exit_code, ok.stdout) == (ExitStatus.OK, 0, "ab\n")
    assert (failed.status, failed.exit_code) == (ExitStatus.NONZERO, 1)
    assert crashed.status is ExitStatus.NONZERO
    assert crashed.stderr.endswith("EOFError: EOF when reading a line\n")


def test_a_value_comes_as_a_file() -> None:
    source = "def f(a, b):\n    print('[0]')\n    return a, b\nclass Solution:\n    def g(self): pass\ndef h(): exit()"
    calls = (Call(function="f", arguments=(1, "ä")), Call(function="g"), Call(function="h"), Call(function="i"))
    f, g, h, i = results(Job(source=source, calls=calls))
    assert (f.status, f.value, f.stdout) == (ExitStatus.OK, [1, "ä"], "[0]\n")
    assert (g.status, g.value) == (ExitStatus.OK, None)
    assert (h.status, i.status) == (ExitStatus.NONZERO, ExitStatus.NONZERO)


def counted(job: Job) -> tuple[list[Result], int, int]:
    """Its results, how often the server was asked, and for how many runs at once."""
    times, now, most = 0, 0, 0

    async def counting(body: dict[str, Any]) -> web.Response:
        nonlocal times, now, most
        times, now = times + 1, now + 1
        most = max(most, now)
        try:
            return await executed(body)
        finally:
            now -= 1

    return results(job, counting), times, most


def test_a_server_is_asked_no_more_for_a_program_that_waits() -> None:
    source = "import time\nif input() == 'wait': time.sleep(100)\nprint('done')"
    job = Job(source=source, stdin=("go", *["wait"] * 3, *["go"] * 4), limits=Limits(wall_s=2.0))
    found, times, _ = counted(job)
    assert [result.status for result in found] == [ExitStatus.OK, ExitStatus.TIMEOUT] + [ExitStatus.SKIPPED] * 6
    assert times <= 4


def test_tests_of_a_program_run_side_by_side_as_many_as_there_are_connections() -> None:
    source = "import time\ntime.sleep(0.5)\nprint(input())"
    found, times, most = counted(Job(source=source, stdin=tuple("abcde")))
    assert [result.stdout for result in found] == ["a\n", "b\n", "c\n", "d\n", "e\n"]
    assert (times, most) == (5, 2)


def test_no_more_runs_at_once_than_the_allowance_could_pay_for() -> None:
    job = Job(source="import time\ntime.sleep(0.2)", stdin=("",) * 3, limits=Limits(wall_s=5.0, program_s=9.0))
    found, times, most = counted(job)
    assert ({result.status for result in found}, times, most) == ({ExitStatus.OK}, 3, 1)


def test_limits() -> None:
    source = "import time\nif input() == 's': time.sleep(100)\nprint('x' * 5000)"
    much, slow = results(Job(source=source, stdin=("o", "s"), limits=Limits(wall_s=3.0, output_kb=4)))
    assert (slow.status, slow.exit_code) == (ExitStatus.TIMEOUT, None)
    assert (much.status, len(much.stdout)) == (ExitStatus.OUTPUT, 4096)
    (small,) = results(Job(source="raise MemoryError", stdin=("",)))
    assert small.status is ExitStatus.MEMORY


@pytest.mark.parametrize(
    "reply",
    [
        answer("SandboxError", None, message="no python here"),
        answer("SandboxError", {"status": "Error", "stderr": "no python here"}),
        answer("Success", {"status": "Finished", "return_code": None, "stderr": "no python here"}),
    ],
)
def test_a_fault_of_the_service_is_no_fault_of_the_program(reply: web.Response) -> None:
    body = reply.text

    async def always(_: dict[str, Any]) -> web.Response:
        return web.Response(text=body, content_type="application/json")

    (found,) = results(Job(source="", stdin=("",)), always)
    assert (found.status, found.detail) == (ExitStatus.ERROR, "SandboxFusion: no python here")


def test_a_busy_server_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "FIRST_DELAY_S", 0.01)
    times = 0

    async def busy(body: dict[str, Any]) -> web.Response:
        nonlocal times
        times += 1
        return web.Response(status=(503, 429)[times - 1]) if times < 3 else await executed(body)

    (found,) = results(Job(source="print(1)", stdin=("",)), busy)
    assert (found.stdout, times) == ("1\n", 3)


def test_a_program_that_breaks_the_server_ends_its_own_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "PATIENCE_S", 0.0)

    async def reply(body: dict[str, Any]) -> web.Response:
        if body["stdin"] == "break":
            return web.Response(status=500, text="Internal Server Error")
        return await executed(body)

    broken, fine = results(Job(source="print(input())", stdin=("break", "a")), reply)
    assert (broken.status, broken.detail) == (
        ExitStatus.ERROR,
        "SandboxFusion: no answer: status 500: Internal Server Error",
    )
    assert (fine.status, fine.stdout) == (ExitStatus.OK, "a\n")


def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "LARGEST", 1 << 16)
    source = "def f(n): return 'x' * n"
    calls = tuple(Call(function="f", arguments=(n,)) for n in (10, 9_000, 300_000))
    small, large, endless = results(Job(source=source, calls=calls, limits=Limits(output_kb=8)))
    assert (small.status, small.value) == (ExitStatus.OK, "x" * 10)
    assert (large.status, large.value, endless.status) == (ExitStatus.OUTPUT, None, ExitStatus.OUTPUT)


def test_no_server_and_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "PATIENCE_S", 0.0)
    job = Job(source="", stdin=("",))

    async def nobody() -> None:
        sandbox = SandboxFusion("http://127.0.0.1:9", connections=1)
        try:
            await sandbox.run(job)
        finally:
            await sandbox.close()

    with pytest.raises(UserError, match=r"start the server, or correct env\.own\.execution\.server"):
        asyncio.run(nobody())

    async def other(_: dict[str, Any]) -> web.Response:
        return web.Response(text="<html>")

    with pytest.raises(UserError, match=r"not an answer of SandboxFusion"):
        results(job, other)
