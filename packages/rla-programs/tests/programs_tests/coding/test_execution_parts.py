"""The parts of the execution service that need no sandbox: the verdict, what is preloaded, the seccomp filter."""

from __future__ import annotations

import errno
import signal
import struct

import pytest
from rla_programs.coding.params import coding_params
from rla_programs.execution import Call, ExitStatus, Job, Limits, Result, default_limits
from rla_programs.execution.allowance import Allowance
from rla_programs.execution.box import Outcome, Sink
from rla_programs.execution.controller import ENDED, HALTED, OWN_PID, TIMED_OUT
from rla_programs.execution.filters import ALLOW, KILL, MACHINES, NEWEST, assembled
from rla_programs.execution.preload import mentioned, with_prelude
from rla_programs.execution.records import ExecutionConfig
from rla_programs.execution.verdict import controller_question, result

from rla.errors import UserError
from tests.unit.builders import configured

LIMITS = Limits(cpu_s=2.0)


def outcome(
    *,
    how: bytes = ENDED,
    code: int = 0,
    by: int = 0,
    cpu_s: float = 0.1,
    stderr: bytes = b"",
    value: bytes = b"",
    overflow: bool = False,
    starved: bool = False,
) -> Outcome:
    """`code`: exit code; `by`: the signal that ended it."""
    return Outcome(
        how=how,
        status=code << 8 | by,
        wall_s=0.1,
        cpu_s=cpu_s,
        stdout=b"out \xff",
        stderr=stderr,
        value=value,
        overflow=overflow,
        starved=starved,
    )


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        (outcome(), ExitStatus.OK),
        (outcome(code=3), ExitStatus.NONZERO),
        (outcome(by=signal.SIGSEGV), ExitStatus.SIGNAL),
        (outcome(how=TIMED_OUT, by=signal.SIGKILL), ExitStatus.TIMEOUT),
        (outcome(how=TIMED_OUT, by=signal.SIGKILL, cpu_s=2.5), ExitStatus.CPU),
        (outcome(by=signal.SIGXCPU, cpu_s=1.99), ExitStatus.CPU),
        (outcome(cpu_s=2.01), ExitStatus.CPU),  # finished, but too late
        (outcome(code=1, stderr=b"Traceback\nMemoryError: no\n"), ExitStatus.MEMORY),
        (outcome(code=1, stderr=b"MemoryError\nValueError: x\n"), ExitStatus.NONZERO),
        (outcome(stderr=b"MemoryError\n"), ExitStatus.OK),  # said, but it ended well
        (outcome(how=HALTED, by=signal.SIGKILL, overflow=True), ExitStatus.OUTPUT),
        (outcome(how=HALTED, by=signal.SIGKILL), ExitStatus.TIMEOUT),  # its allowance was spent
        (outcome(by=signal.SIGKILL, starved=True), ExitStatus.MEMORY),  # by the kernel
        (outcome(starved=True), ExitStatus.OK),  # a process of it, but not the program's first
        (outcome(code=0, overflow=True), ExitStatus.OUTPUT),
    ],
)
def test_the_ending_decides_and_not_what_was_written(seen: Outcome, status: ExitStatus) -> None:
    assert result(seen, LIMITS, called=False).status is status


def test_exit_codes_and_texts() -> None:
    ended = result(outcome(code=3), LIMITS, called=False)
    assert (ended.exit_code, ended.stdout, ended.detail) == (3, "out \ufffd", "")
    killed = result(outcome(by=signal.SIGSEGV), LIMITS, called=False)
    assert (killed.exit_code, killed.detail) == (-11, "SIGSEGV")
    assert result(outcome(how=TIMED_OUT, by=9), LIMITS, called=False).exit_code is None


DEEP = b"[" * 900 + b"]" * 900  # to be read, but not to be written into a checker's call


@pytest.mark.parametrize("value", [b"", b"1 2", DEEP, b"[" * 100_000, b"9" * 30_000, b"\xff"])
def test_a_call_without_a_json_value_has_not_succeeded(value: bytes) -> None:
    assert result(outcome(value=value), LIMITS, called=True).status is ExitStatus.NONZERO


def test_a_call_returns_its_value() -> None:
    found = result(outcome(value=b'[1, "x", null]'), LIMITS, called=True)
    assert (found.status, found.value) == (ExitStatus.OK, [1, "x", None])
    assert controller_question(Call(function="f", arguments=(1, "ä"))) == b'["f", [1, "\\u00e4"]]'


def test_a_sink_keeps_the_beginning_or_the_end() -> None:
    first, last = Sink(4), Sink(4, last=True)
    for part in (b"abc", b"def", b"g"):
        first.add(part)
        last.add(part)
    assert (bytes(first.data), first.size) == (b"abcd", 7)
    assert (bytes(last.data), last.size) == (b"defg", 7)


def test_a_prelude_is_one_line_in_front_but_behind_imports_from_the_future() -> None:
    assert with_prelude("", "x = 1") == "x = 1"
    assert with_prelude("import math", "x = math.pi") == "import math\nx = math.pi"
    future = '"""Doc."""\nfrom __future__ import annotations\n'
    assert with_prelude("import math", f"{future}x = 1") == f"{future}import math\nx = 1"


def test_modules_of_import_lines_are_preloaded() -> None:
    source = "import sys, math\n  from collections import deque\nimport numpy\nx = 'import json'\nimport os;import re"
    assert mentioned(source) == ("collections", "math", "re")


def decided(code: bytes, *, number: int, argument: int = 0, arch: int) -> int:
    """What a filter returns for one system call: an interpreter of the few instructions that it uses."""
    lines = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    at, loaded = 0, 0
    while True:
        kind, yes, no, constant = lines[at]
        at += 1
        if kind == 0x06:
            return constant
        if kind == 0x20:
            loaded = {0: number, 4: arch, 16: argument}[constant]
        else:
            true = {0x15: loaded == constant, 0x35: loaded >= constant, 0x45: bool(loaded & constant)}[kind]
            at += yes if true else no


THREAD, NAMESPACE = 0x3D0F00, 0x10000011  # the flags of pthread_create, and CLONE_NEWUSER


@pytest.mark.parametrize(
    ("alone", "number", "argument", "wanted"),
    [
        (True, 0, 0, None),  # read
        (True, 56, THREAD, None),
        (True, 56, 17, errno.EAGAIN),  # clone as fork does
        (False, 56, 17, None),
        (False, 56, NAMESPACE, errno.EPERM),
        (True, 57, 0, errno.EAGAIN),  # fork
        (False, 57, 0, None),
        (False, 435, 0, errno.ENOSYS),  # clone3
        (True, 62, OWN_PID, None),  # kill
        (True, 62, 1, errno.EPERM),
        (False, 62, 1, None),
        (True, 112, 0, errno.EPERM),  # setsid
        (False, 101, 0, errno.EPERM),  # ptrace
        (False, 302, 0, None),  # prlimit of itself
        (False, 302, 7, errno.EPERM),
        (False, 41, 2, errno.EPERM),  # socket
        (False, NEWEST + 1, 0, errno.ENOSYS),
        (False, 0x40000000, 0, errno.ENOSYS),  # the x32 ABI
    ],
)
def test_the_filter(alone: bool, number: int, argument: int, wanted: int | None) -> None:
    found = decided(assembled("x86_64", alone=alone), number=number, argument=argument, arch=MACHINES["x86_64"][1])
    assert found == (ALLOW if wanted is None else 0x00050000 | wanted)


def test_a_foreign_abi_is_killed_and_aarch64_has_its_numbers() -> None:
    arch = MACHINES["aarch64"][1]
    assert decided(assembled("x86_64", alone=True), number=0, arch=arch) == KILL
    assert decided(assembled("aarch64", alone=True), number=117, arch=arch) == 0x00050000 | errno.EPERM  # ptrace
    assert decided(assembled("aarch64", alone=True), number=63, arch=arch) == ALLOW  # read


def test_limits_come_from_the_params() -> None:
    config = coding_params(
        configured("env.own.execution.memory_mb=64", "env.own.execution.wall_s=2", env="coding")
    ).execution
    assert default_limits(config) == Limits(memory_mb=64, wall_s=2.0)
    assert default_limits(ExecutionConfig()) == Limits()


def took(wall_s: float, status: ExitStatus = ExitStatus.OK, cpu_s: float | None = None) -> Result:
    return Result(status=status, wall_s=wall_s, cpu_s=cpu_s)


EIGHT = Job(source="", stdin=("",) * 8, limits=Limits(wall_s=16.0, cpu_s=4.0))


def spent(job: Job, wall_s: float, cpu_s: float | None) -> tuple[list[Result], float]:
    """What comes of runs that each take `wall_s` unless they are stopped, and their seconds together."""
    allowance, found = Allowance(job), list[Result]()
    for _ in range(job.size):
        took_s = min(wall_s, allowance.wall_s)
        status = ExitStatus.TIMEOUT if took_s < wall_s else ExitStatus.OK
        found.append(allowance.skipped() or allowance.spend(took(took_s, status, cpu_s=cpu_s)))
    return found, sum(result.wall_s for result in found)


def test_a_program_that_computes_a_quarter_of_the_time_runs_all_its_tests() -> None:
    found, seconds = spent(EIGHT, 15.0, 3.75)  # almost all of its CPU time, on a machine that is busy
    assert {result.status for result in found} == {ExitStatus.OK} and seconds == 120.0


def test_a_program_that_sleeps_has_about_one_wall_clock_and_one_cpu_time_for_all_tests() -> None:
    allowance = Allowance(EIGHT)
    assert allowance.spend(took(15.0, cpu_s=0.0)).status is ExitStatus.OK
    assert allowance.wall_s == 3.0 + 2.0 + 4.0  # of 16 s it has waited 15 - 2; and it may start, and compute
    cut = allowance.spend(took(9.0, ExitStatus.TIMEOUT, cpu_s=0.0))
    assert cut.detail == "all tests of the program may wait for 16 s together" and allowance.skipped() is not None
    found, seconds = spent(EIGHT, 6.0, 0.0)  # 4 s of each are waiting
    assert [result.status for result in found] == [ExitStatus.OK] * 4 + [ExitStatus.SKIPPED] * 4 and seconds == 24.0
    assert "waited for the 16 s" in found[-1].detail
    found, seconds = spent(Job(source="", stdin=("",) * 8), 9.9, 0.05)  # 9.9 - 0.2 - 1.25 s of each are waiting
    assert seconds == 2 * 9.9 and found[2].status is ExitStatus.SKIPPED


def test_an_honest_program_that_a_busy_machine_slows_down_has_not_waited() -> None:
    allowance = Allowance(Job(source="", stdin=("",) * 200, limits=Limits(wall_s=16.0, cpu_s=4.0)))
    for _ in range(200):
        assert allowance.skipped() is None
        allowance.spend(took(2.0, cpu_s=0.5))
    assert allowance.wall_s == 16.0


def test_the_time_to_start_each_of_many_tests_does_not_add_up() -> None:
    for wall_s, cpu_s in ((0.6, 0.05), (1.25, 0.0)):
        found, _ = spent(Job(source="", stdin=("",) * 100), wall_s, cpu_s)
        assert {result.status for result in found} == {ExitStatus.OK}
    brief = Job(source="", stdin=("",) * 8, limits=Limits(wall_s=1.0, cpu_s=0.25))
    found, _ = spent(brief, 0.5, 0.0)  # 0.25 s of each are waiting: the grace is no less than that
    assert [result.status for result in found] == [ExitStatus.OK] * 4 + [ExitStatus.SKIPPED] * 4


def test_where_cpu_times_are_unknown_a_run_may_have_computed() -> None:
    found, _ = spent(EIGHT, 4.0, None)
    assert {result.status for result in found} == {ExitStatus.OK}
    allowance = Allowance(EIGHT)
    allowance.spend(took(15.0))  # of which 15 - 4 - 2 s are waiting
    assert allowance.wall_s == 16.0 - 9.0 + 2.0 + 4.0
    _, seconds = spent(Job(source="", stdin=("",) * 8), 9.9, None)
    assert seconds == pytest.approx(79.2)


def test_after_a_timeout_no_test_begins() -> None:
    allowance = Allowance(Job(source="", stdin=("",) * 3, limits=Limits(wall_s=16.0, program_s=20.0)))
    assert allowance.skipped() is None and allowance.spend(took(6.0, ExitStatus.CPU)).detail == ""
    assert (allowance.wall_s, allowance.at_once) == (14.0, 1)
    assert allowance.spend(took(14.0, ExitStatus.TIMEOUT)).detail == "all tests of the program have 20 s together"
    skipped = allowance.skipped()
    assert skipped is not None and "an earlier test ran into the wall clock" in skipped.detail


@pytest.mark.parametrize("value", ["-1", "9.9", ".inf", ".nan"])
def test_an_allowance_below_one_wall_clock_is_refused(value: str) -> None:
    with pytest.raises(UserError, match=r"env\.own\.execution\.program_s is"):
        configured(f"env.own.execution.program_s={value}", env="coding")
    for fine in ("0", "10", "1e5"):
        assert configured(f"env.own.execution.program_s={fine}", env="coding")


@pytest.mark.parametrize("key", ["wall_s", "cpu_s", "memory_mb", "processes", "file_mb", "output_kb"])
def test_a_limit_of_nothing_is_refused(key: str) -> None:
    with pytest.raises(UserError, match=rf"env\.own\.execution\.{key} is 0"):
        configured(f"env.own.execution.{key}=0", env="coding")
