"""The first process of a box: forks one child for each run of the program, ends it, and reports how it ended.

    python -s -P -S -B -X utf8 controller.py CONTROL PROGRAM WORK INODES GROUP UID PRELOAD

A script that uses only the standard library, because it is bound into the box as a file. CONTROL is a SOCK_SEQPACKET
socket to the service, which sends START and the seccomp filter once, then for each run one byte (STDIN or CALL) with
the program's pipes; HALT at any time ends the run. Each run is answered by a REPORT. A child gets only its pipes, and
inputs never pass through this process.

As pid 1 it cannot be signalled or traced by the program (not dumpable), and `kill(-1)` ends everything that the program
left. Each run then has process id 2 and the ids after it, because otherwise the next free id would tell how many an
earlier run has used. Setting ids takes one capability, which no run has. Without it, a box in which a run has started
threads or processes counts as touched.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import os
import resource
import select
import signal
import socket
import struct
import sys
import time

TYPE_CHECKING = False  # importing typing takes as long as everything else together
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

START = struct.Struct("<dIQIQ?")  # wall s, cpu s, address space, tasks (0: unlimited), file size, alone
REPORT = struct.Struct("<cidd?")  # how it ended, wait status, wall s, cpu s, whether it touched its folder
STDIN, CALL, HALT, READY = b"s", b"c", b"h", b"r"
ENDED, TIMED_OUT, HALTED = b"e", b"t", b"h"
OWN_PID = 0x7E64D1F3  # in the filter, replaced by the pid of the program

FILES, STACK = 64, 64 << 20  # descriptors, and bytes of the main thread's stack
VALUE_FD = 3
NO_NEW_PRIVILEGES, SECCOMP, KEEP_CAPABILITIES, DUMPABLE, PARENT_DEATH = 38, 22, 8, 4, 1  # prctl(2)
READ_ONLY, NOSUID, NODEV, NOEXEC, REMOUNT, NOATIME, BIND = 1, 2, 4, 8, 32, 1024, 4096  # mount(2)
DETACH = 2  # umount2(2)
CAPABILITIES_3 = 0x20080522  # capset(2)
CHECKPOINT_RESTORE = 1 << 40
PROCESSES, SYSTEM, LAST_PID, LOAD = "/proc", "/proc/sys", "/proc/sys/kernel/ns_last_pid", "/proc/loadavg"
HEAD, ROOM = 64, 1 << 16

libc = ctypes.CDLL(None, use_errno=True)


class FilterProgram(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


class Box:
    """State that is the same for every run."""

    def __init__(self, control: socket.socket, *, program: str, work: str, numbers: int) -> None:
        """`numbers`: the descriptor of the last process id, if it can be set; else -1."""
        self.control, self.program, self.work, self.numbers = control, program, work, numbers
        data = control.recv(ROOM)
        self.wall, self.cpu, self.memory, self.tasks, self.file, self.alone = START.unpack_from(data)
        self.filter = data[START.size :]
        self.first = os.getpid() == 1
        with contextlib.suppress(OSError):
            os.utime(self.work, (0, 0))  # file clocks tick every few milliseconds: a change may come within a tick
        self.untouched = self.state()

    def state(self) -> tuple[int, int] | None:
        """The state of the working folder, which changes if a run makes, renames or removes something in it, or changes
        its attributes. The folder is not listed, because the program may own it and deny access.
        """
        try:
            found = os.stat(self.work)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ctime_ns

    def serve(self) -> bytes:
        """Returns in each child, with the kind of its run. Ends this process when the service closes the socket."""
        self.control.send(READY)
        while True:
            kind, pipes, _, _ = socket.recv_fds(self.control, HEAD, 4)
            if not kind:
                os._exit(0)
            if kind == HALT:  # for a run that ended by itself at the same time
                continue
            if self.numbers >= 0:
                os.pwrite(self.numbers, b"1", 0)
            child = os.fork()
            if child == 0:
                surrender(0)
                self.confine(pipes)
                return kind
            for pipe in pipes:
                os.close(pipe)
            self.control.send(self.watched(child))

    def watched(self, child: int) -> bytes:
        """Wait for the child's end, the deadline or HALT, then kill everything that is left."""
        started = time.monotonic()
        watcher = os.pidfd_open(child)
        poll = select.poll()
        poll.register(watcher, select.POLLIN)
        poll.register(self.control.fileno(), select.POLLIN)
        ready = {fd for fd, _ in poll.poll(self.wall * 1000)}
        how = ENDED if watcher in ready else HALTED if ready else TIMED_OUT
        wall = time.monotonic() - started
        os.close(watcher)
        _, status, used = self.reap(child)
        if how == HALTED and not self.control.recv(HEAD):
            os._exit(0)  # the service is gone
        touched = self.state() != self.untouched or (self.first and self.numbers < 0 and _last_number() != child)
        return REPORT.pack(how, status, wall, used.ru_utime + used.ru_stime, touched)

    def reap(self, child: int) -> tuple[int, int, resource.struct_rusage]:
        if not self.first:
            os.kill(child, signal.SIGKILL)  # it was alone (the service sees to that), and is not reaped yet
            return os.wait4(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # all but pid 1, in any session
        ended = os.wait4(child, 0)
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return ended

    def confine(self, pipes: list[int]) -> None:
        """In the child: only its pipes, its limits, and the filter."""
        # received in order, with numbers above the controller's own, so no target is a source
        for number, pipe in enumerate(pipes):
            os.dup2(pipe, number)
        os.closerange(len(pipes), 1 << 16)
        if self.first:
            os.setsid()  # any member of a session may set its scheduling weight (/proc/self/autogroup)
        else:
            libc.prctl(PARENT_DEATH, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.limit()
        own = self.filter.replace(struct.pack("=I", OWN_PID), struct.pack("=I", os.getpid()))
        code = ctypes.create_string_buffer(own, len(own))
        program = FilterProgram(len(own) // 8, ctypes.cast(code, ctypes.c_void_p))
        if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(SECCOMP, 2, ctypes.byref(program), 0, 0):
            os._exit(125)

    def limit(self) -> None:
        for kind, soft, hard in (
            (resource.RLIMIT_CORE, 0, 0),
            (resource.RLIMIT_MSGQUEUE, 0, 0),
            (resource.RLIMIT_NOFILE, FILES, FILES),
            (resource.RLIMIT_FSIZE, self.file, self.file),
            (resource.RLIMIT_CPU, self.cpu, self.cpu + 1),  # SIGXCPU, then SIGKILL
            (resource.RLIMIT_STACK, STACK, STACK),
            (resource.RLIMIT_NPROC, self.tasks, self.tasks),
            (resource.RLIMIT_AS, self.memory, self.memory),
        ):
            if kind == resource.RLIMIT_NPROC and not self.tasks:
                continue
            most = resource.getrlimit(kind)[1]
            if most != resource.RLIM_INFINITY:
                soft, hard = min(soft, most), min(hard, most)
            resource.setrlimit(kind, (soft, hard))


def _enclose(work: str, inodes: int, group: int) -> int:
    """Join the cgroup whose cgroup.procs is open (-1: none). Allow at most `inodes` files in the folder (0: no tmpfs),
    and record no access times, which would reveal earlier accesses to a run. Returns the descriptor of the last process
    id, -1 if it is not available.
    """
    if group >= 0:
        os.write(group, b"0")
        os.close(group)
    if not inodes:
        return -1
    flags = REMOUNT | NOSUID | NODEV | NOATIME
    if libc.mount(b"none", work.encode(), None, flags, b"nr_inodes=%d" % inodes):
        raise OSError(ctypes.get_errno(), "the number of files cannot be limited", work)
    for device in os.scandir("/dev"):  # they belong to the host, and a process that may write to one may set its times
        if not device.is_symlink():
            kept = os.statvfs(device.path).f_flag & (NOSUID | NOEXEC | NOATIME)
            libc.mount(b"none", device.path.encode(), None, REMOUNT | BIND | READ_ONLY | kept, None)
    # Process 1 counts the resources that its children have used. Other files of /proc carry the time of the first
    # access.
    libc.mount(b"none", PROCESSES.encode(), None, REMOUNT | NOSUID | NODEV | NOEXEC, b"hidepid=2")
    _look_at_all(PROCESSES)
    while libc.umount2(SYSTEM.encode(), DETACH) == 0:  # bubblewrap's mounts, which hide it and cannot be written
        pass
    try:
        return os.open(LAST_PID, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return -1
    finally:
        flags = READ_ONLY | NOSUID | NODEV | NOEXEC
        if libc.mount(b"none", SYSTEM.encode(), b"tmpfs", flags, b"size=4096"):
            raise OSError(ctypes.get_errno(), "it cannot be hidden", SYSTEM)


def _look_at_all(folder: str) -> None:
    """Access the files in a folder and below. Processes may disappear, and other file systems may be mounted there."""
    with contextlib.suppress(OSError):
        here = os.lstat(folder).st_dev
        for entry in os.scandir(folder):
            found = None if entry.name.isdigit() else entry.stat(follow_symlinks=False)
            if found and found.st_dev == here and entry.is_dir(follow_symlinks=False):
                _look_at_all(entry.path)


def descend(user: int, numbers: int) -> int:
    """Change from root to a user of its own, without capabilities except the one that sets process ids. Under memory
    pressure the kernel should kill the program first. Returns `numbers`, -1 if it cannot be written.
    """
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    if user:
        libc.prctl(KEEP_CAPABILITIES, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        libc.prctl(PARENT_DEATH, signal.SIGKILL)  # changing the user has reset bwrap's --die-with-parent
    if numbers >= 0:
        try:
            surrender(CHECKPOINT_RESTORE)
            os.pwrite(numbers, b"1", 0)
        except OSError:
            os.close(numbers)
            numbers = -1
    if numbers < 0:
        surrender(0)
    libc.prctl(DUMPABLE, 0, 0, 0, 0)
    return numbers


def surrender(kept: int) -> None:
    """Drop all capabilities but these."""
    words = [word for half in (kept & 0xFFFFFFFF, kept >> 32) for word in (half, half, 0)]
    if libc.capset(ctypes.byref((ctypes.c_uint * 2)(CAPABILITIES_3)), ctypes.byref((ctypes.c_uint * 6)(*words))):
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")


def _last_number() -> int:
    """The last process id assigned in this namespace."""
    with open(LOAD, "rb") as file:
        return int(file.read().split()[-1])


def preload(names: str) -> None:
    """Import the modules that the program mentions, once for all runs, and the builtins that `-S` leaves out."""
    import site

    site.setquit()
    site.sethelper()
    for name in filter(None, names.split(",")):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _standard_streams() -> None:
    """New streams on the child's pipes, made as the interpreter does."""
    for number, name, mode, errors, buffering in (
        (0, "stdin", "r", "surrogateescape", -1),
        (1, "stdout", "w", "surrogateescape", -1),
        (2, "stderr", "w", "backslashreplace", 1),
    ):
        stream = open(number, mode, buffering, "utf-8", errors, "\n", closefd=False)  # noqa: SIM115 (the program's)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def shown(error: BaseException) -> None:
    """The traceback of the program, from its own first line on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def exit_code(error: SystemExit) -> int:
    """As the interpreter interprets `sys.exit(...)`."""
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def run(act: Callable[[], None]) -> int:
    """The exit code of the program."""
    try:
        act()
    except SystemExit as error:
        return exit_code(error)
    except BaseException as error:  # any exception ends it, as it would end an interpreter
        shown(error)
        return 1
    return 0


def finish(code: int, namespace: dict[str, Any]) -> None:
    """Finish as the interpreter does, but without the teardown, which would copy every shared page."""
    threading = sys.modules.get("threading")
    if threading is not None:
        threading._shutdown()
    atexit._run_exitfuncs()
    if threading is None or threading.active_count() == 1:
        namespace.clear()  # files that are still open write their buffers
        gc.collect()
    for stream in (sys.stdout, sys.__stdout__, sys.stderr, sys.__stderr__):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except (OSError, ValueError) as error:
            code = code or 120
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
    os._exit(code)


def play(path: str, module: Any, called: bool) -> None:
    """Execute the program, and for a call also the function that stdin names."""
    question = b"".join(iter(lambda: os.read(0, ROOM), b"")) if called else b""
    if called:
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, module.__dict__)
    if called:
        answer(module, question)


def answer(module: Any, question: bytes) -> None:
    """Call the function and write its value as JSON to its own pipe."""
    import json

    name, arguments = json.loads(question)
    # The method first, because a prelude may import a function of that name.
    function = getattr(module.Solution() if hasattr(getattr(module, "Solution", None), name) else module, name, None)
    if function is None:
        raise NameError(f"the program has no function {name!r}")
    data = json.dumps(function(*arguments)).encode()
    while data:
        data = data[os.write(VALUE_FD, data) :]
    os.close(VALUE_FD)


def main() -> None:
    control, program, work, inodes, group, user, names = sys.argv[1:]
    os.environ.clear()
    sys.set_int_max_str_digits(0)  # a program may print integers of any length, because time and output are limited
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    numbers = descend(int(user), _enclose(work, int(inodes), int(group)))
    preload(names)
    kind = Box(socket.socket(fileno=int(control)), program=program, work=work, numbers=numbers).serve()
    _standard_streams()
    module: Any = type(sys)("program" if kind == CALL else "__main__")
    module.__file__, sys.argv = program, [program]
    sys.modules[module.__name__] = module
    finish(run(lambda: play(program, module, kind == CALL)), module.__dict__)


if __name__ == "__main__":
    main()
