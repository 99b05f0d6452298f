"""The first process of a session: limits a command, runs it, and ends everything that it has started.

    python -I -S supervisor.py SETTINGS COMMAND...    # SETTINGS: `Settings` as JSON

In a box it is process 1. It becomes another user, forwards an address to a socket, and packs the command's folder at
the end. Outside a box it adopts the orphans of every session, so it counts and kills them all.
A script of the standard library, because it is bound into the box as a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    class Settings(TypedDict):
        """Limits of a command in processes and threads, and bytes; 0 for none. In a box, `socket` answers at
        127.0.0.1:`port`, `user` runs the command (0: the same), and the files of `folder` are written to the
        descriptor `kept`.
        """

        tasks: int
        memory: int
        file: int
        socket: str
        port: int
        user: int
        folder: str
        kept: int


BLOCK = 1 << 16
MOST_CONNECTIONS, QUEUE = 128, 1024  # at a time, and others that wait
MOST_KEPT = 1 << 15  # files and folders
WHOLE = ".."  # the name of the last entry of a tar file in which none is missing
WATCH_S = 0.1  # between two counts of processes
END_S = 30.0  # for everything to end; a process in the kernel may take longer
SPARE = 16  # all tasks of its user may be this many times the command's limit
CROWDED = signal.SIGUSR1  # the signal that ends this process after too many tasks
HEARD = {signal.SIGCHLD, signal.SIGTERM}
DUMPABLE_STATE, SUBREAPER = 4, 36  # prctl(2)


def copy_bytes(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until one end closes, then close both for the other thread."""
    with contextlib.suppress(OSError):
        while data := source.recv(BLOCK):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _forward(client: socket.socket, path: str, room: threading.Semaphore) -> None:
    with client, socket.socket(socket.AF_UNIX) as server, contextlib.suppress(OSError, RuntimeError):
        server.connect(path)
        back = threading.Thread(target=copy_bytes, args=(server, client), daemon=True)
        back.start()
        copy_bytes(client, server)
        back.join()
    room.release()


def accept_forever(listening: socket.socket, path: str) -> None:
    room = threading.Semaphore(MOST_CONNECTIONS)
    while True:
        room.acquire()
        client, _ = listening.accept()
        threading.Thread(target=_forward, args=(client, path, room), daemon=True).start()


def descendants(pid: int) -> tuple[list[int], int]:
    """The processes that a process has started, with theirs, and the number of their threads."""
    found: list[int] = []
    pending, threads = [pid], -1  # the first one's own
    while pending:
        folder = f"/proc/{pending.pop()}/task"
        with contextlib.suppress(OSError):
            for thread in os.listdir(folder):
                threads += 1
                with open(f"{folder}/{thread}/children") as file:
                    born = [int(child) for child in file.read().split()]
                found += born
                pending += born
    return found, threads


def _limit(most: Settings, boxed: bool) -> None:
    """Limit this process, which becomes the command. The kernel counts the tasks of a user: in a box those of the
    command and two for each connection that is forwarded, elsewhere others, too, so that this limit is a second one
    behind the count. The kernel does not apply it to root.
    """
    tasks = most["tasks"]
    if tasks and not boxed:
        mine = [entry.path for entry in os.scandir("/proc") if entry.name.isdigit() and _owned(entry)]
        tasks = SPARE * tasks + sum(map(_thread_count, mine))
    wanted = (
        (resource.RLIMIT_NPROC, tasks),
        (resource.RLIMIT_AS, most["memory"]),
        (resource.RLIMIT_FSIZE, most["file"]),
    )
    for kind, value in wanted:
        hard = resource.getrlimit(kind)[1]
        if value:
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))
    if tasks:  # when memory is short, the kernel kills the command, and not those who watch it
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")


def _owned(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.stat().st_uid == os.getuid()
    except OSError:
        return False


def _thread_count(process: str) -> int:
    try:
        return len(os.listdir(f"{process}/task"))
    except OSError:
        return 0


def _started(command: list[str], settings: Settings, boxed: bool) -> int:
    """The command's process."""
    child = os.fork()
    if child:
        return child
    os.setsid()  # so that a signal to its own group does not reach this process
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python
        signal.signal(ignored, signal.SIG_DFL)
    try:
        _limit(settings, boxed)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def end_with_reader() -> None:
    """End this process when nobody can read its output any more. The kernel's signal at a parent's death does not come
    from bubblewrap to another user.
    """
    poll = select.poll()
    poll.register(1, 0)
    poll.poll()
    os.kill(os.getpid(), signal.SIGTERM)


def status_of(child: int, most: int) -> int | None:
    """The command's wait status once it has ended; None if it was stopped, by a signal or for too many tasks."""
    while True:
        heard = signal.sigtimedwait(HEARD, WATCH_S if most else 3600.0)
        if heard is not None and heard.si_signo == signal.SIGTERM:
            return None
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                return ended[1]
        if most and descendants(os.getpid())[1] > most:
            end_all()
            signal.signal(CROWDED, signal.SIG_DFL)
            os.kill(os.getpid(), CROWDED)


def end_all() -> None:
    """Kill every other process of the session, and wait until none is left."""
    until = time.monotonic() + END_S
    while time.monotonic() < until:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        for pid in [-1] if os.getpid() == 1 else descendants(os.getpid())[0]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.01)


def _pack(folder: str, kept: int, most: int) -> None:
    """Write the files and folders in a folder to a tar file, except symbolic links and unreadable files. WHOLE is
    missing if there are too many, or more than `most` bytes: holes count, because they are written.
    """
    import tarfile  # most sessions keep no files

    with contextlib.suppress(OSError), open(kept, "wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        size, number = 0, 0
        for number, path in enumerate(_entries(folder), start=1):
            with contextlib.suppress(OSError):
                found = tar.gettarinfo(path, os.path.relpath(path, folder))
                if found is None:  # a socket
                    continue
                size += found.size if found.isreg() else 0  # a further name of a file is a link to it
                if size > most or number > MOST_KEPT:
                    return
                found.mtime = 0  # it may be a time that no file of this machine can have
                if found.isreg():
                    with open(path, "rb") as source:
                        tar.addfile(found, source)
                elif found.isdir() or found.islnk():
                    tar.addfile(found)
        tar.addfile(tarfile.TarInfo(WHOLE))


def _entries(folder: str) -> Iterator[str]:
    for top, folders, files in os.walk(folder):
        yield from (os.path.join(top, name) for name in (*folders, *files))


def main() -> None:
    settings: Settings = json.loads(sys.argv[1])
    command, boxed = sys.argv[2:], os.getpid() == 1
    prctl = ctypes.CDLL(None).prctl
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    if boxed:
        listening = socket.create_server(("127.0.0.1", settings["port"]), backlog=QUEUE)
        os.set_inheritable(settings["kept"], False)
        if user := settings["user"]:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        prctl(DUMPABLE_STATE, 0, 0, 0, 0)  # the command may neither trace this process nor use its descriptors
        os.chdir(settings["folder"])  # which root without capabilities may not enter
    else:
        prctl(SUBREAPER, 1, 0, 0, 0)
        with contextlib.suppress(OSError):  # for root: a command with a thousand processes leaves others no time
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    child = _started(command, settings, boxed)
    threading.Thread(target=end_with_reader, daemon=True).start()
    if boxed:
        threading.Thread(target=accept_forever, args=(listening, settings["socket"]), daemon=True).start()
    status = status_of(child, 0 if boxed else settings["tasks"])
    end_all()
    if boxed:
        _pack(settings["folder"], settings["kept"], settings["file"])
    os._exit(128 + signal.SIGTERM if status is None else os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()
