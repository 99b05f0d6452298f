"""OSWorld's own metrics, in a process of a virtual environment that has `desktop_env`: JSON over stdin and stdout.

`desktop_env` cannot be installed in the same environment as `rla`. The process gets files in a temporary folder, and
ends with the service.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla_screens.desktop.found_files import FoundFile
from rla_screens.desktop.own_loop import in_own_loop

WORKER = Path(__file__).with_name("official_worker.py")
METRIC_S = 120.0
START_S = 180.0  # seconds; `desktop_env` imports torch and much else
MOST_LINE = 1 << 26


class OfficialFailure(Exception):
    """The metric could not be computed; the message says why. This does not count as a score."""


class OfficialMetrics:
    """One process for a service, started at the first request. Requests wait for each other."""

    def __init__(self, python: str) -> None:
        self._python = python
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self.names: frozenset[str] = frozenset()

    async def score(
        self, name: str, result: Any, expected: Any, options: Mapping[str, Any], *, has_expected: bool
    ) -> float:
        """Raises OfficialFailure, and UserError if the process cannot be started."""
        asked = {"func": name, "result": sent(result), "options": dict(options)}
        async with self._turn:
            process = await self._started()
            answer = await self._told(process, asked | ({"expected": sent(expected)} if has_expected else {}), METRIC_S)
        if "score" not in answer:
            raise OfficialFailure(f"OSWorld's {name}: {answer.get('error', 'no answer')}")
        return float(answer["score"])

    async def known(self) -> frozenset[str]:
        """The names of OSWorld's metrics. Raises UserError."""
        async with self._turn:
            await self._started()
        return self.names

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is not None and self._process.returncode is None:
            return self._process
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        try:
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                self._python,
                str(WORKER),
                stdin=pipe,
                stdout=pipe,
                stderr=asyncio.subprocess.DEVNULL,
                env=kept,
                limit=MOST_LINE,
            )
            answer = await self._told(self._process, {"names": True}, START_S)
        except (OSError, OfficialFailure) as error:
            await self.close()
            raise UserError(
                f"env.own.osworld_python: {self._python} does not run OSWorld's metrics ({error})"
            ) from None
        if "names" not in answer:
            await self.close()
            raise UserError(f"env.own.osworld_python: {self._python} has no desktop_env ({answer.get('error')})")
        self.names = frozenset(answer["names"])
        return self._process

    async def _told(self, process: asyncio.subprocess.Process, asked: Mapping[str, Any], longest: float) -> Any:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(asked).encode() + b"\n")
            line = await asyncio.wait_for(process.stdout.readline(), longest)
            answer = json.loads(line)
        except (OSError, TimeoutError, ValueError) as error:
            await self.close()
            raise OfficialFailure(f"the process of OSWorld's metrics failed ({type(error).__name__})") from None
        except asyncio.CancelledError:  # its answer is still to come, and would be taken for the next one's
            await self.close()
            raise
        return answer if isinstance(answer, dict) else {}


def official_names(python: str) -> frozenset[str]:
    """The names of OSWorld's metrics that a Python has. May be called inside an event loop. Raises UserError."""

    async def asked() -> frozenset[str]:
        metrics = OfficialMetrics(python)
        try:
            return await metrics.known()
        finally:
            await metrics.close()

    return in_own_loop(asked)


def sent(value: Any) -> Any:
    """JSON data in which files are {"file": base64, "name", "beside": files}."""
    if isinstance(value, FoundFile):
        data = base64.b64encode(value).decode()
        return {"file": data, "name": value.name, "beside": [sent(each) for each in value.beside]}
    if isinstance(value, bytes):
        return {"file": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [sent(each) for each in value]
    return {"value": value}
