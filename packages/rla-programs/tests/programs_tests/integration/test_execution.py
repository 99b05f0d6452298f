"""Programs that behave: what a local sandbox gives them and what it reports, on every backend that runs here."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rla_programs.coding.importing.livecode import OFFICIAL_IMPORTS
from rla_programs.execution import Call, ExitStatus, Job, Limits, Sandbox, make_sandbox
from rla_programs.execution.preload import with_prelude
from rla_programs.execution.records import ExecutionConfig

from programs_tests.execution.sandboxes import LOCAL, PATIENT, descendants, gone, in_sandbox, made, one, results
from rla.errors import UserError

READERS = {
    "input": "print(input(), input())",
    "sys.stdin": "import sys; print(sys.stdin.read().split())",
    "buffer": "import sys; print(sys.stdin.buffer.read())",
    "open(0)": "print(repr(open(0).read()))",
    "os.read": "import os; print(os.read(0, 100))",
    "/dev/stdin": "print(repr(open('/dev/stdin').read()))",
    "both": "import sys; print(input()); print(repr(sys.stdin.read()))",
    "buffer out": "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()); print('end', end='')",
    "lines": "import sys\nfor line in sys.stdin: print(repr(line))",
}


@pytest.mark.parametrize("backend", LOCAL)
def test_stdin_and_stdout_are_those_of_an_interpreter(backend: str) -> None:
    """Every way to read, against `python -I`: also with a carriage return and without a last newline."""
    text = "3 4\r\nzwölf"

    async def main(sandbox: Sandbox) -> None:
        for name, source in READERS.items():
            (ours,) = await sandbox.run(Job(source=source, stdin=(text,), limits=PATIENT))
            plain = subprocess.run(
                [sys.executable, "-I", "-X", "utf8", "-c", source], input=text.encode(), capture_output=True, check=True
            )
            assert (ours.status, ours.stdout) == (ExitStatus.OK, plain.stdout.decode()), name

    in_sandbox(backend, main)


ENDINGS = {
    "print(1)": 0,
    "import sys; sys.exit(7)": 7,
    "exit()": 0,
    "import sys; sys.exit('no')": 1,
    "raise SystemExit(256 + 3)": 3,
    "1 / 0": 1,
    "def f(:": 1,
    "import atexit; atexit.register(lambda: print('last'))": 0,
    "f = open(1, 'w'); f.write('held')": 0,
    "import threading; threading.Thread(target=lambda: print('thread')).start()": 0,
    "import sys, os; print('x'); os.close(1)": 120,
    "import os; print('lost'); os._exit(4)": 4,
    "class C:\n    def __del__(self): print('deleted')\nc = C()": 0,
}


@pytest.mark.parametrize("backend", LOCAL)
def test_a_program_ends_as_in_an_interpreter(backend: str) -> None:
    async def main(sandbox: Sandbox) -> None:
        for source, code in ENDINGS.items():
            (ours,) = await sandbox.run(Job(source=source, stdin=("",), limits=PATIENT))
            plain = subprocess.run([sys.executable, "-I", "-c", source], capture_output=True, check=False)
            assert plain.returncode == code
            assert (ours.exit_code, ours.stdout) == (code, plain.stdout.decode()), source
            assert ours.status is (ExitStatus.NONZERO if code else ExitStatus.OK)
            assert ours.stderr.strip().rpartition("\n")[2] == plain.stderr.decode().strip().rpartition("\n")[2], source

    in_sandbox(backend, main)


@pytest.mark.parametrize("backend", LOCAL)
def test_a_value_travels_apart_from_stdout(backend: str) -> None:
    source = """
def pair(a, b):
    print('{"value": 0}')
    return (a, {"b": b, "none": None})
class Solution:
    def double(self, x): return 2 * x
def nothing(): import os; os._exit(0)
def odd(): return {1, 2}
if __name__ == "__main__":
    input()
"""
    calls = (
        Call(function="pair", arguments=(1, "zwölf")),
        Call(function="double", arguments=([1],)),
        Call(function="nothing"),
        Call(function="odd"),
        Call(function="missing"),
    )
    pair, double, nothing, odd, missing = results(backend, source, calls=calls)
    assert (pair.status, pair.value, pair.stdout) == (
        ExitStatus.OK,
        [1, {"b": "zwölf", "none": None}],
        '{"value": 0}\n',
    )
    assert double.value == [1, 1]
    assert (nothing.status, nothing.exit_code, nothing.value) == (ExitStatus.NONZERO, 0, None)
    assert "did not return" in nothing.detail
    assert odd.status is missing.status is ExitStatus.NONZERO
    assert "not JSON serializable" in odd.stderr and "missing" in missing.stderr


@pytest.mark.parametrize("backend", LOCAL)
def test_more_than_a_pipe_holds(backend: str) -> None:
    """300 kB each way; also where the program reads nothing, or all after it has written."""
    text = "a" * 300_000
    echo, deaf, late = results(
        backend,
        "import sys\nmode = sys.stdin.read(1)\nif mode == 'd': sys.exit()\n"
        "if mode == 'l': print('x' * 300_000)\nprint(len(sys.stdin.read()))\nif mode == 'e': print('y' * 300_000)",
        *(mode + text for mode in "edl"),
    )
    assert [run.status for run in (echo, deaf, late)] == [ExitStatus.OK] * 3
    assert echo.stdout == f"300000\n{'y' * 300_000}\n"
    assert late.stdout == f"{'x' * 300_000}\n300000\n"


@pytest.mark.parametrize("backend", LOCAL)
def test_two_runs_agree(backend: str) -> None:
    """One hash seed, and no state of one test in the next; `random` is seeded anew in each."""
    source = (
        "import os, random\nopen('mark', 'x').close()\nprint(set('abcdefg'), os.listdir('.'), dict(os.environ))\n"
        "import sys; print(random.random(), file=sys.stderr)"
    )
    first, second = results(backend, source, "", "")
    assert first.status is ExitStatus.OK
    assert first.stdout == second.stdout
    assert first.stdout.endswith("['mark'] {}\n")
    assert first.stderr != second.stderr


@pytest.mark.parametrize("backend", LOCAL)
def test_odd_texts_are_results(backend: str) -> None:
    async def main(sandbox: Sandbox) -> list[ExitStatus]:
        sources = (
            "print('\ud83d')",
            "print(1)\0",
            "",
            "# -*- coding: nonsense -*-",
            "import sys; sys.stdout.buffer.write(b'\\xff')",
        )
        jobs = [Job(source=source, stdin=("\ud83d\0",), limits=PATIENT) for source in sources]
        return [result.status for (result,) in await asyncio.gather(*map(sandbox.run, jobs))]

    bad, good = ExitStatus.NONZERO, ExitStatus.OK
    assert in_sandbox(backend, main) == [bad, bad, good, bad, good]


@pytest.mark.parametrize("backend", LOCAL)
def test_threads_with_a_large_stack_work(backend: str) -> None:
    source = (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(2**27)\n"
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)\n"
        "t = threading.Thread(target=lambda: print(f(20_000)))\nt.start()\nt.join()"
    )
    assert one(backend, source).stdout == "20000\n"


@pytest.mark.parametrize("backend", LOCAL)
def test_a_cancelled_job_leaves_nothing(backend: str) -> None:
    async def main(sandbox: Sandbox) -> None:
        before = descendants()
        running = asyncio.create_task(
            sandbox.run(Job(source="import time; time.sleep(100)", stdin=("",), limits=PATIENT))
        )
        while not (started := descendants() - before):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        started |= descendants() - before
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await asyncio.to_thread(gone, started)

    in_sandbox(backend, main)


@pytest.mark.parametrize("backend", LOCAL)
def test_a_closed_sandbox_has_ended_what_ran(backend: str) -> None:
    async def main() -> None:
        sandbox = made(backend)
        before = descendants()
        job = Job(source="import time; time.sleep(100)", stdin=("", ""), limits=PATIENT)
        running = [asyncio.create_task(sandbox.run(job)) for _ in range(4)]
        while not descendants() - before:
            await asyncio.sleep(0.02)
        started = time.monotonic()
        await sandbox.close()
        assert time.monotonic() - started < 20
        assert all(
            isinstance(answer, BaseException) for answer in await asyncio.gather(*running, return_exceptions=True)
        )
        assert await asyncio.to_thread(gone, descendants() - before)

    asyncio.run(main())


def playing(backend: str, folder: Path) -> bool:
    """Whether the program is there, and not only the one by which a sandbox is tried; bubblewrap leaves no trace."""
    try:
        return backend != "rlimits" or any("sleep" in path.read_text() for path in folder.glob("*/program.py"))
    except OSError:  # the other one, gone meanwhile
        return False


@pytest.mark.parametrize("backend", LOCAL)
def test_a_killed_stage_leaves_no_process_and_the_next_removes_its_folders(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made(backend)
    stage = f"""
import asyncio
from rla_programs.execution import Job
from programs_tests.execution.sandboxes import PATIENT, made
asyncio.run(made({backend!r}).run(Job(source="import time; time.sleep(100)", stdin=("",), limits=PATIENT)))
"""
    before = descendants()
    process = subprocess.Popen([sys.executable, "-c", stage], env=os.environ | {"TMPDIR": str(tmp_path)})
    until = time.monotonic() + 60
    started = set[int]()
    while (len(started) < 3 or not playing(backend, tmp_path)) and time.monotonic() < until:
        time.sleep(0.05)
        started = descendants() - before  # the stage, the controller, the program
    assert len(started) >= 3
    folders = list(tmp_path.iterdir())
    assert bool(folders) == (backend == "rlimits")
    for folder in folders:
        os.utime(folder, (0, 0))  # old enough for the next stage
    made(backend)
    assert list(tmp_path.iterdir()) == folders  # in use
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert gone(started)
    made(backend)
    assert not list(tmp_path.iterdir())


def test_the_configured_backend_is_made_or_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"bwrap is not installed: install the package bubblewrap.*rlimits"):
        make_sandbox(ExecutionConfig())
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    with pytest.raises(
        UserError, match=r"No permissions to create new namespace\): (run it as another|allow user names)"
    ):
        make_sandbox(ExecutionConfig(backend="bubblewrap"))
    fake.write_text("#!/bin/sh\necho 'bwrap: execvp /x/python3: No such file or directory' >&2\nexit 1\n")
    with pytest.raises(
        UserError, match=r"execvp /x/python3: No such file or directory\): use an interpreter of another"
    ):
        make_sandbox(ExecutionConfig(backend="bubblewrap"))
    with pytest.raises(UserError, match=r"execution\.server"):
        make_sandbox(ExecutionConfig(backend="sandboxfusion"))


def test_processes_are_refused_where_they_cannot_be_counted() -> None:
    (found,) = results("rlimits", "print(1)", limits=Limits(processes=2))
    assert found.status is ExitStatus.ERROR
    assert "limits.processes" in found.detail


@pytest.mark.parametrize("backend", LOCAL)
def test_integers_of_more_than_4300_digits_are_printed_read_and_returned(backend: str) -> None:
    async def main(sandbox: Sandbox) -> None:
        printed = Job(source="print(int(input()) + 1)", stdin=("9" * 5000,), limits=PATIENT)
        assert (await sandbox.run(printed))[0].stdout == "1" + "0" * 5000 + "\n"
        call = Call(function="f", arguments=(10**5000,))
        called = Job(source="def f(n): return [n + 1]", calls=(call,), limits=PATIENT)
        assert (await sandbox.run(called))[0].value == [10**5000 + 1]

    in_sandbox(backend, main)


@pytest.mark.parametrize("backend", LOCAL)
def test_a_class_solution_needs_no_imports_of_its_own(backend: str) -> None:
    """And its method is called, whatever the prelude has imported under its name."""
    source = "class Solution:\n    def gcd(self, a: List[int]) -> int:\n        return math.prod(a) + pow(2, 3, 5)"

    async def main(sandbox: Sandbox) -> None:
        call = Call(function="gcd", arguments=([2, 3],))
        job = Job(source=with_prelude(OFFICIAL_IMPORTS, source), calls=(call,), limits=PATIENT)
        (found,) = await sandbox.run(job)
        assert (found.status, found.value) == (ExitStatus.OK, 9), found.stderr

    in_sandbox(backend, main)
