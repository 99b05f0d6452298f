"""From the outcome of a run to a `Result`, and from texts and calls to bytes."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from rla_programs.execution import controller
from rla_programs.execution.box import Outcome
from rla_programs.execution.nesting import too_deep
from rla_programs.execution.records import Call, ExitStatus, Limits, Result

NO_VALUE = "the function did not return a JSON value"


def encoded(text: str) -> bytes:
    """UTF-8; a text from a model may contain lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def controller_question(call: Call) -> bytes:
    """The data that the controller's child reads on stdin before it calls."""
    return json.dumps([call.function, call.arguments]).encode()


def result(outcome: Outcome, limits: Limits, *, called: bool) -> Result:
    """`called`: a status of OK also needs a value."""
    code = os.waitstatus_to_exitcode(outcome.status)
    stderr = outcome.stderr.decode("utf-8", "replace")
    status, detail = ending(outcome, limits, code, stderr), ""
    value = None
    if called and status is ExitStatus.OK:
        try:
            value = parsed_verdict(outcome.value)
        except ValueError:
            status, detail = ExitStatus.NONZERO, NO_VALUE
    elif status is ExitStatus.SIGNAL:
        detail = killed_by(-code)
    return Result(
        status=status,
        exit_code=None if outcome.how != controller.ENDED else code,
        stdout=outcome.stdout.decode("utf-8", "replace"),
        stderr=stderr,
        value=value,
        wall_s=outcome.wall_s,
        cpu_s=outcome.cpu_s,
        detail=detail,
    )


def ending(outcome: Outcome, limits: Limits, code: int, stderr: str) -> ExitStatus:
    """The limit that ended the run, or how it ended by itself."""
    if outcome.overflow:
        return ExitStatus.OUTPUT
    if outcome.cpu_s > limits.cpu_s or code == -signal.SIGXCPU:
        return ExitStatus.CPU
    if outcome.starved and code:
        return ExitStatus.MEMORY
    if outcome.how in (controller.TIMED_OUT, controller.HALTED):  # halted because of its output, or by its allowance
        return ExitStatus.TIMEOUT
    if code < 0:
        return ExitStatus.SIGNAL
    if code == 0:
        return ExitStatus.OK
    return ExitStatus.MEMORY if out_of_memory(stderr) else ExitStatus.NONZERO


def out_of_memory(stderr: str) -> bool:
    """Whether a failed program ended with a MemoryError."""
    return stderr.rstrip().rpartition("\n")[2].startswith("MemoryError")


def parsed_verdict(data: bytes) -> Any:
    """The JSON value in `data`. Raises ValueError for anything else, because the program may write any bytes."""
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if too_deep(value):
        raise ValueError("nested too deeply")
    return value


def killed_by(number: int) -> str:
    """SIGSEGV for 11; real-time signals have no names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
