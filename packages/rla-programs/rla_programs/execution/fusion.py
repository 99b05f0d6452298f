"""Programs on a SandboxFusion server: one `POST /run_code` for each run (bytedance/SandboxFusion, `sandbox_api.py`),
several in parallel. Results are as if run one after another.

The server enforces the wall clock (`run_timeout`), the memory limit and its own isolation. Of the other limits only
`output_kb` is applied here (the server itself cuts output at 1 MiB). A call's value comes back as a file, separate from
stdout. If the server cannot be reached, or is busy (429, 5xx), the request is repeated for PATIENCE_S. If it still
cannot be reached, the stage ends. If a server runs but does not answer this request, the program may be the cause: the
run is an error, as if a box had died, and others go on.
"""

from __future__ import annotations

import asyncio
import base64
import time
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from rla.errors import UserError
from rla_programs.execution.allowance import Allowance
from rla_programs.execution.preload import with_prelude
from rla_programs.execution.records import Call, ExitStatus, Job, Limits, Result
from rla_programs.execution.verdict import NO_VALUE, controller_question, killed_by, out_of_memory, parsed_verdict

PATIENCE_S, FIRST_DELAY_S, LONGEST_DELAY_S = 60.0, 0.25, 5.0
ANSWER_S = 600.0  # beyond the wall clock: the server's own queue
EXCERPT = 300
LARGEST = 16 << 20  # bytes of an answer beyond the output limit; output may be contained twice and escaped
LONG_INTEGERS = "__import__('sys').set_int_max_str_digits(0)"  # as in a box on this machine
VALUE, PROGRAM = "value.json", "program.py"
CALLER = f"""import json, sys
sys.set_int_max_str_digits(0)
name, arguments = json.loads(sys.stdin.read())
space = {{"__name__": "program"}}
with open({PROGRAM!r}, encoding="utf-8") as file:
    exec(compile(file.read(), {PROGRAM!r}, "exec"), space)
solution = space.get("Solution")
function = getattr(solution(), name) if hasattr(solution, name) else space.get(name)
if function is None:
    raise NameError(f"the program has no function {{name!r}}")
value = json.dumps(function(*arguments))
with open({VALUE!r}, "w") as file:
    file.write(value)
"""


class Busy(Exception):
    """The server may answer later."""


class TooMuch(Exception):
    """An answer beyond all limits: the program has written too much."""


UNANSWERED = (Busy, TimeoutError, aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError)


class SandboxFusion:
    """`Sandbox` over HTTP. Only one event loop may use it."""

    def __init__(self, server: str, *, connections: int) -> None:
        """Raises UserError if `server` is not a base URL."""
        if urlsplit(server).scheme not in ("http", "https"):
            raise UserError(
                "env.own.execution.backend is sandboxfusion; set env.own.execution.server to the base URL of a "
                f"SandboxFusion server, such as http://localhost:8080, not {server!r}"
            )
        self._url = f"{server.rstrip('/')}/run_code"
        self._places = asyncio.Semaphore(connections)
        self._session: aiohttp.ClientSession | None = None

    async def run(self, job: Job) -> list[Result]:
        """See `Sandbox.run`. Raises UserError if no server answers."""
        allowance, counted = Allowance(job), list[Result]()
        places = asyncio.Semaphore(allowance.at_once)
        questions: list[str | Call] = [*job.stdin, *job.calls]
        found: list[Result | None] = [None] * len(questions)

        async def one(place: int, asked: str | Call) -> None:
            async with places, self._places:  # in order
                if allowance.skipped() is None:
                    found[place] = await self._one(asked, job)
            while len(counted) < job.size and (earliest := found[len(counted)]):
                counted.append(allowance.skipped() or allowance.spend(earliest))

        try:
            async with asyncio.TaskGroup() as group:
                for place, asked in enumerate(questions):
                    group.create_task(one(place, asked))
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return counted + [skipped for _ in questions[len(counted) :] if (skipped := allowance.skipped())]

    async def close(self) -> None:
        """See `Sandbox.close`."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _one(self, asked: str | Call, job: Job) -> Result:
        called = isinstance(asked, Call)
        body = _call_request(job, asked) if isinstance(asked, Call) else _stdin_request(job, asked)
        try:
            return _fusion_result(await self._ask(body, job.limits), job.limits, called=called)
        except UNANSWERED as error:
            said = str(error) or type(error).__name__
            return Result(status=ExitStatus.ERROR, detail=f"SandboxFusion: no answer: {said}")
        except TooMuch:
            return Result(status=ExitStatus.OUTPUT, detail="the server's answer is too large")

    async def _ask(self, body: dict[str, Any], limits: Limits) -> dict[str, Any]:
        """Raises UserError if no server answers, UNANSWERED exceptions, and TooMuch."""
        until, delay = time.monotonic() + PATIENCE_S, FIRST_DELAY_S
        while True:
            try:
                return await self._attempt(body, limits)
            except UNANSWERED:
                if time.monotonic() + delay > until:
                    raise
            except aiohttp.ClientError as error:
                if time.monotonic() + delay > until:
                    raise UserError(
                        f"{self._url}: {error or type(error).__name__}; start the server, or correct "
                        "env.own.execution.server"
                    ) from None
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_DELAY_S)

    async def _attempt(self, body: dict[str, Any], limits: Limits) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        patience = aiohttp.ClientTimeout(total=limits.wall_s + ANSWER_S)
        async with self._session.post(self._url, json=body, timeout=patience) as response:
            text = await bounded(response, LARGEST + 12 * (limits.output_kb << 10))
        if response.status == 429 or response.status >= 500:
            raise Busy(f"status {response.status}: {text[:EXCERPT]}")
        answer = _readable_answer(text) if response.status == 200 else None
        if not isinstance(answer, dict):
            raise UserError(
                f"{self._url}: status {response.status}, not an answer of SandboxFusion ({text[:EXCERPT]!r}); correct "
                "env.own.execution.server"
            )
        return answer


async def bounded(response: aiohttp.ClientResponse, most: int) -> str:
    """The answer's text. Raises TooMuch beyond `most` bytes."""
    data = bytearray()
    async for part in response.content.iter_chunked(1 << 16):
        data += part
        if len(data) > most:
            raise TooMuch
    return data.decode("utf-8", "replace")


def _readable_answer(text: str) -> Any:
    try:
        return parsed_verdict(text.encode())
    except ValueError:
        return None


def _fusion_request(code: str, stdin: str, limits: Limits) -> dict[str, Any]:
    return {
        "language": "python",
        "code": code,
        "stdin": stdin,
        "run_timeout": limits.wall_s,
        "memory_limit_MB": limits.memory_mb,
    }


def _stdin_request(job: Job, text: str) -> dict[str, Any]:
    return _fusion_request(with_prelude(LONG_INTEGERS, job.source), text, job.limits)


def _call_request(job: Job, call: Call) -> dict[str, Any]:
    """The program as a file, with a script that calls its function and writes the value to another file."""
    program = base64.b64encode(job.source.encode("utf-8", "surrogatepass")).decode()
    files = {"files": {PROGRAM: program}, "fetch_files": [VALUE]}
    return _fusion_request(CALLER, controller_question(call).decode(), job.limits) | files


def _fusion_result(answer: dict[str, Any], limits: Limits, *, called: bool) -> Result:
    """The server's answer as a `Result`; missing fields are an error of the service."""
    ran = answer.get("run_result") or {}
    state, code = ran.get("status"), ran.get("return_code")
    stdout, stderr = str(ran.get("stdout") or ""), str(ran.get("stderr") or "")
    most = limits.output_kb << 10
    value, detail = None, ""
    if state == "TimeLimitExceeded":
        status = ExitStatus.TIMEOUT
    elif state != "Finished" or not isinstance(code, int):
        said = answer.get("message") or stderr or f"status {answer.get('status')!r} without a result"
        return Result(status=ExitStatus.ERROR, detail=f"SandboxFusion: {str(said)[:EXCERPT]}")
    elif len(stdout.encode("utf-8", "replace")) + len(stderr.encode("utf-8", "replace")) > most:
        status = ExitStatus.OUTPUT
    elif code:
        status = ExitStatus.SIGNAL if code < 0 else ExitStatus.MEMORY if out_of_memory(stderr) else ExitStatus.NONZERO
        detail = killed_by(-code) if code < 0 else ""
    else:
        status = ExitStatus.OK
    if called and status is ExitStatus.OK:
        try:
            data = base64.b64decode((answer.get("files") or {}).get(VALUE, ""))
            status, value = (ExitStatus.OUTPUT, None) if len(data) > most else (status, parsed_verdict(data))
        except ValueError:
            status, detail = ExitStatus.NONZERO, NO_VALUE
    seconds = ran.get("execution_time")
    return Result(
        status=status,
        exit_code=code if isinstance(code, int) else None,
        stdout=stdout[:most],
        stderr=stderr[-4096:],
        value=value,
        wall_s=float(seconds) if isinstance(seconds, int | float) else 0.0,
        detail=detail,
    )
