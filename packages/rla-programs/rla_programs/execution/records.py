"""The configuration of a sandbox, its jobs and its results. A job contains no expected output: callers compare."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol

from rla.config.load import web_address
from rla.config.schema import ranged, without_effect
from rla.errors import UserError


class ExitStatus(StrEnum):
    """How one run of a program ended."""

    OK = "ok"
    NONZERO = "nonzero"  # an exit code other than 0, or a call that did not return a JSON value
    SIGNAL = "signal"  # killed by a signal that none of the limits sent
    TIMEOUT = "timeout"  # wall clock
    CPU = "cpu"
    MEMORY = "memory"  # it ended with a MemoryError
    OUTPUT = "output"  # it wrote more than allowed
    SKIPPED = "skipped"  # not run, because an earlier run of the program used up a limit; `Result.detail` says which
    ERROR = "error"  # the service failed, not the program; `Result.detail` says why


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one run; they apply to each test separately, except `program_s`."""

    wall_s: float = 10.0
    cpu_s: float = 10.0
    memory_mb: int = 1024  # of address space, for each process
    # 1: the program cannot start processes (and has up to 64 threads); more: threads count as processes
    processes: int = 1
    file_mb: int = 16  # the largest file, and all files of a program together
    output_kb: int = 1024  # stdout and stderr together; the same again for a returned value
    # wall clock of all runs together; 0: wall_s to wait, and cpu_s for each run to compute (`allowance.py`)
    program_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionConfig:
    """How programs that models have written are run (`docs/guide/coding.md`). A task may set its own limits."""

    backend: Literal["auto", "bubblewrap", "sandboxfusion", "rlimits"] = "auto"  # auto: bubblewrap
    workers: int = without_effect(0, least=0, most=4096)  # programs at once; 0: as many as cores
    server: str = without_effect("")  # `sandboxfusion`: base URL, such as http://localhost:8080
    wall_s: float = ranged(10.0, above=0.0, most=86400.0)  # of each test
    # wall clock of all tests of a program together; 0: wall_s to wait, and for each test its CPU time to compute
    program_s: float = ranged(0.0, least=0.0, most=864000.0)
    cpu_s: float = ranged(10.0, above=0.0, most=86400.0)  # processor time of each test
    memory_mb: int = ranged(1024, least=1, most=16777216)  # address space of each process
    processes: int = ranged(1, least=1, most=4096)  # the program's own process included
    file_mb: int = ranged(16, least=1, most=16777216)  # all files of a program together
    output_kb: int = ranged(1024, least=1, most=16777216)  # of each test

    @property
    def on_this_machine(self) -> bool:
        """Whether programs run on this machine, and not on a server."""
        return self.backend != "sandboxfusion"


def check_execution(execution: ExecutionConfig) -> None:
    """Raises UserError for limits and backends that do not fit together."""
    if execution.backend == "sandboxfusion" and web_address(execution.server) is None:
        raise UserError(
            "env.own.execution.backend is sandboxfusion; set env.own.execution.server to the base URL of a "
            f"SandboxFusion server, such as http://localhost:8080, not {execution.server!r}"
        )
    if execution.program_s and execution.program_s < execution.wall_s:
        raise UserError(
            f"env.own.execution.program_s is {execution.program_s}; it must be 0, or at least env.own.execution.wall_s "
            f"({execution.wall_s:g})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a function of the program, or of a method of its class `Solution`. Arguments are JSON values."""

    function: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One program and its inputs: first each text of `stdin`, then each call. Each has one result."""

    source: str
    stdin: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    limits: Limits = Limits()

    @property
    def size(self) -> int:
        """The number of results."""
        return len(self.stdin) + len(self.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run. `value` (calls) is transferred separately from stdout; `stderr` is its end, at most 4 KiB."""

    status: ExitStatus
    exit_code: int | None = None  # None without an exit code; -n if signal n ended it
    stdout: str = ""
    stderr: str = ""
    value: Any = None
    wall_s: float = 0.0
    cpu_s: float | None = None  # None if the backend does not report it
    detail: str = ""


class Sandbox(Protocol):
    """One service for a whole stage. Jobs may be awaited concurrently; at most its number of workers run at once."""

    async def run(self, job: Job) -> list[Result]:
        """One result for each stdin and each call, in order. Whatever the program does is a result."""
        ...

    async def close(self) -> None:
        """End everything that still runs."""
        ...
