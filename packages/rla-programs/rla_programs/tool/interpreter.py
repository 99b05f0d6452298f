"""The Python tool: a call is a program, and its result is the program's output. No call sees another, as far as the
sandbox separates them (`docs/guide/sandbox.md`).

| status | the call |
|---|---|
| `ok` | ran to its end |
| `error` | ended with an exception, an exit code or a signal |
| `timeout`, `memory`, `output` | reached that limit; its text says which |
| `malformed` | could not be parsed as a call |
| `unknown` | names another tool, or has no string `code` |

Arguments besides `code` are ignored. The published tool obeys a `timeout` that its schema does not name; models that
have learnt to write one should get their result, but not be able to lift a limit.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

from rla.envs.observation import CallResult, EnvironmentFailure
from rla_programs.execution import ExitStatus, Sandbox, default_limits, make_sandbox
from rla_programs.execution.records import ExecutionConfig
from rla_programs.execution.standing import run_once
from rla_programs.tool.autoprint import Autoprint, prepared
from rla_programs.tool.calls import TOOL, Malformed, ToolCall
from rla_programs.tool.results import Cut, cut_text, harmless, told_result

LONGEST_CODE = 1_000_000  # characters
NO_CODE = f'{TOOL} needs the argument "code": the text of a Python program.'
TOO_LONG = f"The program was not run because it is longer than {LONGEST_CODE} characters."


@dataclass(slots=True)
class CallFigures:
    """Statistics of calls. `ended`: the number of calls by status; `seconds`: how long each program ran; `waits`: how
    long its episode waited for the result.
    """

    ended: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def numbers(self) -> dict[str, float]:
        """Flat: `calls`, `calls_STATUS`, then `runs` with `run_seconds_mean` and `run_seconds_p99`, and
        `call_seconds_mean` with its p99. Empty without calls.
        """
        if not self.ended:
            return {}
        found: dict[str, float] = {"calls": self.ended.total()}
        found |= {f"calls_{status}": count for status, count in sorted(self.ended.items())}
        if self.seconds:
            found["runs"] = len(self.seconds)
        for name, values in (("run_seconds", self.seconds), ("call_seconds", self.waits)):
            if values:
                found[f"{name}_mean"] = sum(values) / len(values)
                found[f"{name}_p99"] = nearest_rank(values, 0.99)
        return found


def nearest_rank(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    return sorted(values)[max(0, -int(-share * len(values) // 1) - 1)]


class PythonTool:
    """One sandbox for all episodes of a stage, used by one event loop. Raises UserError if nothing can be run here."""

    def __init__(
        self,
        execution: ExecutionConfig,
        *,
        result_chars: int = 2048,
        autoprint: Autoprint = "syntax",
        cutting: Cut = "middle",
        sandbox: Sandbox | None = None,
    ) -> None:
        self._limits = default_limits(execution)
        self._chars, self._autoprint, self._cutting = result_chars, autoprint, cutting
        self._sandbox = sandbox or make_sandbox(execution)
        self._figures = CallFigures()

    async def call(self, call: ToolCall | Malformed) -> CallResult:
        """Whatever the model wrote has a result. Raises EnvironmentFailure if the sandbox itself failed."""
        started = time.monotonic()
        result = self._refused(call) or await self._run(call)
        self._figures.ended[result.status] += 1
        self._figures.waits.append(time.monotonic() - started)
        return result

    def figures(self) -> dict[str, float]:
        """See `CallFigures.numbers`."""
        return self._figures.numbers()

    async def close(self) -> None:
        """End every program that still runs."""
        await self._sandbox.close()

    def _refused(self, call: ToolCall | Malformed) -> CallResult | None:
        """The result of a call that cannot be run."""
        if isinstance(call, Malformed):
            return self._told(call.reason, "malformed")
        if call.name != TOOL:
            return self._told(f"There is no tool {cut_text(call.name, 64)!r}; the only tool is {TOOL!r}.", "unknown")
        code = call.arguments.get("code")
        if not isinstance(code, str):
            return self._told(NO_CODE, "unknown")
        return self._told(TOO_LONG, "error") if len(code) > LONGEST_CODE else None

    def _told(self, text: str, status: str) -> CallResult:
        return CallResult(text=cut_text(harmless(text), self._chars, self._cutting), status=status)

    async def _run(self, call: ToolCall | Malformed) -> CallResult:
        assert isinstance(call, ToolCall)  # the others were refused
        source = prepared(call.arguments["code"], self._autoprint)
        result = await run_once(self._sandbox, source, self._limits)
        if result.status is ExitStatus.ERROR:
            raise EnvironmentFailure(f"the sandbox failed: {result.detail}")
        self._figures.seconds.append(result.wall_s)
        return told_result(result, self._limits, chars=self._chars, how=self._cutting)
