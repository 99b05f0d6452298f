"""Programs that attack: each harms its own result at most, and what runs after it runs as if it had not been there."""

from __future__ import annotations

import os
import sys
import time

import pytest
from rla_programs.execution import Call, ExitStatus, Job, Limits, Result, Sandbox

from programs_tests.execution.sandboxes import LOCAL, PATIENT, in_sandbox, results

SHORT = Limits(wall_s=1.0, cpu_s=30.0)
MANY = Limits(wall_s=2.0, cpu_s=2.0, processes=16)


def attacked(backend: str, source: str, limits: Limits = SHORT) -> Result:
    """The result of an attack; afterwards the sandbox runs another program as ever, and nothing of it is left."""

    async def main(sandbox: Sandbox) -> Result:
        (found,) = await sandbox.run(Job(source=source, stdin=("",), limits=limits))
        (after,) = await sandbox.run(Job(source="print(input())", stdin=("fine",), limits=PATIENT))
        assert (after.status, after.stdout) == (ExitStatus.OK, "fine\n")
        assert found.status is not ExitStatus.ERROR, found.detail
        return found

    result: Result = in_sandbox(backend, main)
    return result


@pytest.mark.parametrize("backend", LOCAL)
def test_a_program_starts_no_process(backend: str) -> None:
    source = """
import os, subprocess, sys
for start in (os.fork, lambda: subprocess.run([sys.executable]), lambda: os.posix_spawn("/bin/sh", ["sh"], {})):
    try:
        start()
    except BlockingIOError as error:
        print("refused", error.errno)
"""
    assert attacked(backend, source, PATIENT).stdout == "refused 11\n" * 3


@pytest.mark.parametrize("processes", (1, 16))
def test_a_fork_bomb(processes: int) -> None:
    source = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
    found = attacked("bubblewrap", source, Limits(wall_s=1.0, cpu_s=30.0, processes=processes))
    assert found.status in (ExitStatus.TIMEOUT, ExitStatus.CPU)


def test_processes_are_counted() -> None:
    source = """
import os, time
started = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(100)
        started += 1
except BlockingIOError:
    print(started)
"""
    found = attacked("bubblewrap", source, Limits(wall_s=60.0, processes=16))
    assert (found.status, found.stdout) == (ExitStatus.OK, "15\n")


def test_daemons_end_with_their_program() -> None:
    """A grandchild in a session of its own that holds the program's stdout open."""
    source = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
os.wait()
print("parent done")
"""
    started = time.monotonic()
    found = attacked("bubblewrap", source, Limits(wall_s=60.0, processes=16))
    assert (found.status, found.stdout) == (ExitStatus.OK, "parent done\n")
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("backend", LOCAL)
def test_every_signal_ignored(backend: str) -> None:
    source = """
import signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    pass
"""
    timeout = attacked(backend, source)
    assert timeout.status is ExitStatus.TIMEOUT
    assert timeout.exit_code is None
    assert 1.0 <= timeout.wall_s < 10.0
    cpu = attacked(backend, source, Limits(wall_s=60.0, cpu_s=1.0))
    assert cpu.status is ExitStatus.CPU


@pytest.mark.parametrize("backend", LOCAL)
def test_sleeping_costs_the_wall_clock(backend: str) -> None:
    found = attacked(backend, "print('before', flush=True)\nimport time\ntime.sleep(1000)")
    assert (found.status, found.stdout) == (ExitStatus.TIMEOUT, "before\n")


@pytest.mark.parametrize("backend", LOCAL)
def test_a_program_that_waits_costs_one_wall_clock_and_not_one_for_each_test(backend: str) -> None:
    source = "import time\nif input() == 'wait': time.sleep(999)\nprint('done')"
    started = time.monotonic()
    found = results(backend, source, "go", *["wait"] * 8, limits=SHORT)
    assert time.monotonic() - started < 6.0
    assert [run.status for run in found] == [ExitStatus.OK, ExitStatus.TIMEOUT] + [ExitStatus.SKIPPED] * 7
    assert {run.detail for run in found[2:]} == {"not run: an earlier test ran into the wall clock"}


@pytest.mark.parametrize("backend", LOCAL)
def test_all_tests_of_a_program_have_an_allowance_together(backend: str) -> None:
    source = "import time\ntime.sleep(0.4)\nprint('done')"
    found = results(backend, source, *[""] * 8, limits=Limits(wall_s=60.0, program_s=1.0))
    assert (found[0].status, found[-1].status) == (ExitStatus.OK, ExitStatus.SKIPPED)
    assert sum(run.wall_s for run in found) < 1.3 and sum(run.status is ExitStatus.OK for run in found) <= 2


@pytest.mark.parametrize("stream", ("stdout", "stderr"))
@pytest.mark.parametrize("backend", LOCAL)
def test_a_gigabyte_of_output(backend: str, stream: str) -> None:
    source = f"import sys\nfor _ in range(1024): sys.{stream}.write('x' * 2**20)"
    found = attacked(backend, source, Limits(wall_s=60.0, output_kb=256))
    assert found.status is ExitStatus.OUTPUT
    assert len(found.stdout) <= 256 << 10
    assert len(found.stderr) <= 4096


@pytest.mark.parametrize("backend", LOCAL)
def test_a_memory_bomb(backend: str) -> None:
    for source in ("x = bytearray(8 << 30)", "x = [0]\nwhile True: x += x"):
        found = attacked(backend, source, Limits(wall_s=60.0, cpu_s=30.0, memory_mb=256))
        assert found.status is ExitStatus.MEMORY


@pytest.mark.parametrize("backend", LOCAL)
def test_memory_that_no_limit_counts_is_refused(backend: str) -> None:
    source = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
calls = {
    "memfd": lambda: os.memfd_create("x"),
    "shmget": lambda: os.strerror(ctypes.get_errno()) and libc.shmget(0, 1 << 30, 0o1600),
    "mq": lambda: libc.mq_open(b"/q", 0o102, 0o600, None),
    "inotify": lambda: libc.inotify_init1(0),
    "aio": lambda: libc.syscall(0 if os.uname().machine == "aarch64" else 206, 1, ctypes.byref(ctypes.c_long())),
}
for name, call in calls.items():
    try:
        print(name, call() == -1 and ctypes.get_errno())
    except OSError as error:
        print(name, error.errno)
"""
    assert attacked(backend, source, PATIENT).stdout == "memfd 1\nshmget 1\nmq 1\ninotify 1\naio 1\n"


@pytest.mark.parametrize("backend", LOCAL)
def test_deep_recursion(backend: str) -> None:
    source = "import sys\nsys.setrecursionlimit(2**31 - 1)\ndef f(x): return f([x])\nf(0)"
    found = attacked(backend, source, Limits(wall_s=60.0, cpu_s=30.0, memory_mb=64))
    assert found.status not in (ExitStatus.OK, ExitStatus.TIMEOUT)  # what the interpreter makes of no memory varies
    nested = attacked(backend, "x = " + "(" * 100_000 + ")" * 100_000, PATIENT)
    assert nested.status in (ExitStatus.NONZERO, ExitStatus.MEMORY)


def test_files_have_their_limit_and_end_with_their_test() -> None:
    source = """
import os
print(os.listdir("/tmp"), os.listdir("/dev/shm"))
with open("small", "w") as file:
    file.write("left behind")
os.mkdir("closed", 0)
try:
    for number in range(100):
        with open(f"/tmp/{number}", "wb") as file:
            file.write(bytes(3 << 20))
except OSError as error:
    print(error.strerror)
try:
    with open("/dev/shm/large", "wb") as file:
        file.write(bytes(9 << 20))
except OSError as error:
    print(error.strerror)
"""
    first, second = results("bubblewrap", source, "", "", limits=Limits(wall_s=60.0, file_mb=8))
    assert first.stdout == second.stdout == "[] []\nNo space left on device\nNo space left on device\n"


@pytest.mark.parametrize("backend", LOCAL)
def test_a_file_larger_than_the_limit(backend: str) -> None:
    source = "with open('x', 'wb') as file:\n    for _ in range(2048): file.write(bytes(2**20))"
    found = attacked(backend, source, Limits(wall_s=60.0, file_mb=4))
    assert found.status is ExitStatus.NONZERO
    assert "File too large" in found.stderr or "No space left" in found.stderr


@pytest.mark.parametrize("backend", LOCAL)
def test_there_is_no_network(backend: str) -> None:
    source = """
import socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, 40):
    try:
        socket.socket(family, socket.SOCK_STREAM)
        print("a socket")
    except PermissionError:
        print("refused")
"""
    assert attacked(backend, source, PATIENT).stdout == "refused\n" * 5


def test_neither_environment_nor_home_nor_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLA_SERVER_API_KEY", "hunter2")
    source = """
import os, socket
print(dict(os.environ), socket.gethostname(), sorted(os.listdir("/etc")), os.getuid() == 0)
print(b"hunter2" in open("/proc/self/environ", "rb").read() if os.access("/proc/self/environ", os.R_OK) else False)
found = []
for top in ("/root", "/home", "/work", "/var", "/mnt", "/sys", "/run", "/opt"):
    for path, folders, files in os.walk(top):
        folders[:] = [name for name in folders if os.path.join(path, name) not in PREFIX]
        found += files
print(found)
for path in ("/x", "/usr/x", "/box/x", "/dev/x", "/proc/sys/x", "/proc/sysrq-trigger", "/box/program.py"):
    try:
        open(path, "w")
        print("wrote", path)
    except OSError:
        pass
"""
    prefix = f"PREFIX = {[sys.base_prefix]!r}\n"
    found = attacked("bubblewrap", prefix + source, PATIENT)
    assert found.stdout == "{} box ['ld.so.cache'] False\nFalse\n[]\n", found


def test_proc_shows_the_box_alone() -> None:
    source = """
import os
pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
assert os.listdir("/proc/sys") == [], "the kernel's own switches"
print(os.getpid() in pids and set(pids) <= {1, os.getpid()}, sorted(os.listdir("/proc/self/fd")))
readers = {"mem": open, "environ": open, "maps": open, "fd": os.listdir, "cwd": os.readlink, "root": os.readlink}
for name, read in readers.items():
    try:
        found = read(f"/proc/1/{name}")
        print("read", name)
    except OSError:
        pass
"""
    assert attacked("bubblewrap", source, PATIENT).stdout == "True ['0', '1', '2', '3']\n"


@pytest.mark.parametrize("backend", LOCAL)
def test_no_frame_and_no_object_holds_another_test(backend: str) -> None:
    """What a run can reach in its own process: neither inputs of other tests nor anything of the service."""
    source = """
import gc, sys
seen, text = sys._getframe(), input()
reached = []
while seen is not None:
    reached += [seen.f_globals, seen.f_locals]
    seen = seen.f_back
reached += gc.get_objects()
kinds = (dict, list, tuple, str, bytes)
print(text, any("tset-rehto" in repr(thing)[99_999::-1] for thing in reached if isinstance(thing, kinds)))
"""
    found = results(backend, source, "first other-test", "second", "third")
    assert [run.stdout for run in found[1:]] == ["second False\n", "third False\n"]


@pytest.mark.parametrize("backend", LOCAL)
def test_a_forged_verdict_is_output(backend: str) -> None:
    """Written to every descriptor there may be: the exit status is still the program's own."""
    source = """
import os, struct, sys
report = struct.pack("<cidd?", b"e", 0, 0.1, 0.1, False)
for fd in range(64):
    for text in (report, b'{"status": "ok"}', b"OK"):
        try:
            os.write(fd, text)
        except OSError:
            pass
sys.exit(9)
"""
    found = attacked(backend, source, PATIENT)
    assert (found.status, found.exit_code) == (ExitStatus.NONZERO, 9)
    assert "OK" in found.stdout


@pytest.mark.parametrize("backend", LOCAL)
def test_a_forged_value_is_no_more_than_a_wrong_value(backend: str) -> None:
    source = """
import os
def f(kind):
    os.write(3, {"twice": b"1", "deep": b"[" * 10**6, "digits": b"9" * 10**5, "long": b" " * 2**21}[kind])
    return 2
def g():
    os.write(3, b"7")
    os._exit(0)
"""
    calls = tuple(Call(function="f", arguments=(kind,)) for kind in ("twice", "deep", "digits", "long"))
    twice, deep, digits, long, own = results(backend, source, calls=(*calls, Call(function="g")))
    assert twice.value == 12  # its own value, badly written
    assert deep.status is digits.status is ExitStatus.NONZERO
    assert long.status is ExitStatus.OUTPUT
    assert own.value == 7


@pytest.mark.parametrize("backend", LOCAL)
def test_closed_descriptors(backend: str) -> None:
    source = "import os\nprint('seen', flush=True)\nos.closerange(0, 100)\nwhile True: pass"
    found = attacked(backend, source)
    assert (found.status, found.stdout) == (ExitStatus.TIMEOUT, "seen\n")
    assert attacked(backend, "import os\nos.closerange(0, 100)\nos._exit(0)", PATIENT).status is ExitStatus.OK


KILLERS = """
import os, signal
for pid in (-1, 1, os.getppid()):
    for number in (signal.SIGINT, signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, number)
        except OSError:
            pass
print("alive", flush=True)
try:
    os.kill(0, signal.SIGKILL)  # its own group, itself included
except OSError:
    pass
"""


@pytest.mark.parametrize(("backend", "limits"), [(name, PATIENT) for name in LOCAL] + [("bubblewrap", MANY)])
def test_killing_everybody_else(backend: str, limits: Limits) -> None:
    found = attacked(backend, KILLERS, limits)
    first, second = results(backend, KILLERS, "", "", limits=limits)
    for run in (found, first, second):
        assert (run.status, run.stdout) == (ExitStatus.OK if limits.processes == 1 else ExitStatus.SIGNAL, "alive\n")


@pytest.mark.parametrize(("backend", "limits"), [(name, PATIENT) for name in LOCAL] + [("bubblewrap", MANY)])
def test_other_processes_and_new_namespaces_are_out_of_reach(backend: str, limits: Limits) -> None:
    source = """
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
parent = os.getppid()
def failed(value): return ctypes.get_errno() if value == -1 else value
print(failed(libc.ptrace(16, parent, 0, 0)), failed(libc.unshare(0x10000000)), failed(libc.unshare(0x20000)))
print(failed(libc.setpriority(0, parent, 19)), failed(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)))
for attempt in (
    lambda: resource.prlimit(parent, resource.RLIMIT_CPU, (0, 0)),
    lambda: os.sched_setaffinity(parent, {0}),
    lambda: open(f"/proc/{parent}/mem", "r+b"),
    lambda: os.setuid(0) if os.getuid() else os.open("/no/such", 0),
):
    try:
        attempt()
        print("done")
    except OSError as error:
        print("refused")
"""
    lines = attacked(backend, source, limits).stdout.splitlines()
    assert lines[:2] == ["1 1 1", "1 1"]
    if backend == "rlimits" and os.geteuid() == 0:  # root reads what it likes: rlimits have no walls
        del lines[4]
    assert set(lines[2:]) == {"refused"}


@pytest.mark.parametrize("backend", LOCAL)
def test_a_thread_bomb(backend: str) -> None:
    source = """
import _thread, os, time
_thread.stack_size(32768)
started = 0
try:
    while started < 100_000:
        _thread.start_new_thread(time.sleep, (1000,))
        started += 1
except (RuntimeError, MemoryError):
    pass
os.write(1, b"%d" % started)
os._exit(0)
"""
    found = attacked(backend, source, Limits(wall_s=60.0, cpu_s=30.0, memory_mb=128))
    assert found.status is ExitStatus.OK
    assert int(found.stdout) == 63 if backend == "bubblewrap" else int(found.stdout) < 5_000
