"""The server's end: one thread, a selector, one child per request.

Nothing may start a thread, run a torch operation or touch a GPU before a fork: a child inherits only the
forking thread, and a GPU context does not survive. `preload` refuses to go on where an import did.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import random
import selectors
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from rla.processes.leaving import end_at_once
from rla.processes.prefork.handover import ACCEPTED, DONE, PING, REFUSED, RUN, STOP, receive_exactly
from rla.processes.ranks import end_with_parent

COMMANDS = "rla.cli.preload"  # the module that imports what commands need; this one knows none of them
TICK = 1.0  # seconds between looks at the parent and the clock
LONGEST = 1 << 24  # bytes of a request
SLOWEST = 5.0  # seconds that a client has for its request: nobody else is heard meanwhile


@dataclass(slots=True)
class Child:
    """A running command: its process group leader and the client that waits for it."""

    pid: int
    client: socket.socket


@dataclass(slots=True, kw_only=True)
class PreforkServer:
    """State of the loop. `parent` 0 means that no process is watched."""

    listener: socket.socket
    fingerprint: str
    parent: int
    idle_seconds: float
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    children: dict[int, Child] = field(default_factory=dict)
    stopping: bool = False
    used: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class ForkedCall:
    """What a child runs; by then it has the client's streams, folder and environment."""

    arguments: list[str]


def preload_commands() -> None:
    """Import what stages import. Raises RuntimeError where an import has started a thread."""
    import_module(COMMANDS).preload()
    threads = len(os.listdir("/proc/self/task")) if Path("/proc/self/task").exists() else 1
    if threads != 1:
        raise RuntimeError(f"{threads} threads run after the imports; a forked child could hang")
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that holds a Python object


def serve_calls(server: PreforkServer) -> ForkedCall | None:
    """Answer requests until told to stop; None in the server, and in each forked child the call to run."""
    wake, signalled = socket.socketpair()
    for end in (wake, signalled):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: setattr(server, "stopping", True))
    signal.set_wakeup_fd(signalled.fileno(), warn_on_full_buffer=False)
    server.selector.register(server.listener, selectors.EVENT_READ)
    server.selector.register(wake, selectors.EVENT_READ)
    while not (server.stopping or server_expired(server)):
        for key, _ in server.selector.select(TICK):
            if key.fileobj is wake:
                wake.recv(4096)
            elif key.fileobj is server.listener:
                call = accept(server)
                if call is not None:
                    signal.set_wakeup_fd(-1)
                    wake.close()
                    signalled.close()
                    return call
            elif isinstance(key.data, Child):
                hear(server, key.data)
        reap(server)
    for child in server.children.values():
        kill(child)
    return None


def server_expired(server: PreforkServer) -> bool:
    """Idle for too long, or without the process that it serves and without children."""
    if server.children:
        server.used = time.monotonic()
        return False
    if server.parent and not alive(server.parent):
        return True
    return time.monotonic() - server.used > server.idle_seconds


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def accept(server: PreforkServer) -> ForkedCall | None:
    """Take one request. In the forked child: its call. In the server: None."""
    try:
        client, _ = server.listener.accept()
    except OSError:  # the client has gone, or no descriptor is left; the selector would report it again at once
        time.sleep(TICK)
        return None
    client.settimeout(SLOWEST)
    message, streams = receive_call(client)
    kind = message.get("kind")
    same = message.get("fingerprint") == server.fingerprint
    call = None
    if kind == RUN and same and len(streams) == 3 and runnable(message):
        call = fork(server, client, message, streams)
    else:
        server.stopping |= kind == STOP
        with contextlib.suppress(OSError):
            client.sendall(ACCEPTED if kind == STOP or (kind == PING and same) else REFUSED)
        client.close()
    for stream in streams:
        os.close(stream)
    return call


def receive_call(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The request and its file descriptors; an empty one from a client that went away or makes no sense."""
    streams: list[int] = []
    until = time.monotonic() + SLOWEST
    try:
        head, streams, _, _ = socket.recv_fds(client, 4, 3)
        head += receive_exactly(client, 4 - len(head), until=until)
        length = int.from_bytes(head, "big")
        message = json.loads(receive_exactly(client, length, until=until)) if length <= LONGEST else {}
    except (OSError, EOFError, ValueError, RecursionError):
        message = {}
    return message if isinstance(message, dict) else {}, streams


def runnable(message: dict[str, Any]) -> bool:
    """Whether a request has all that a child needs to take its client's place."""
    environment, arguments = message.get("environment"), message.get("arguments")
    return (
        isinstance(environment, dict)
        and isinstance(arguments, list)
        and all(isinstance(text, str) for text in (*environment.values(), *arguments, message.get("cwd")))
        and type(message.get("umask")) is int
    )


def fork(
    server: PreforkServer, client: socket.socket, message: dict[str, Any], streams: list[int]
) -> ForkedCall | None:
    """Start a child in a process group of its own, so that all that it starts can be ended with it."""
    try:
        pid = os.fork()
    except OSError:  # no process or no memory is left: the client runs by itself
        client.close()
        return None
    if pid == 0:
        try:
            return become(server, client, message, streams)
        except (OSError, ValueError, OverflowError) as error:  # no such folder, or an environment of no process
            sys.stderr.write(f"error: the command cannot start here ({error}); call it from a folder that exists\n")
            end_at_once(2)
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpgid(pid, pid)
    child = Child(pid=pid, client=client)
    server.children[pid] = child
    try:
        client.sendall(ACCEPTED)
        server.selector.register(client, selectors.EVENT_READ, child)
    except OSError:
        kill(child)
    return None


def become(server: PreforkServer, client: socket.socket, message: dict[str, Any], streams: list[int]) -> ForkedCall:
    """In the child: leave the server behind and take the client's place."""
    os.setpgid(0, 0)
    end_with_parent()  # no command runs unwatched
    server.selector.close()
    server.listener.close()
    for other in server.children.values():
        other.client.close()
    client.close()
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=os.isatty(1))
    os.environ.clear()
    os.environ.update(message["environment"])
    os.umask(message["umask"])
    os.chdir(message["cwd"])
    random.seed()
    return ForkedCall(arguments=message["arguments"])


def hear(server: PreforkServer, child: Child) -> None:
    """Pass a signal on to the child's group; end the group where its client is gone."""
    try:
        number = child.client.recv(1)
    except OSError:
        number = b""
    if number:
        with contextlib.suppress(OSError):  # the group is gone, or that is no signal
            os.killpg(child.pid, number[0])
        return
    server.selector.unregister(child.client)
    kill(child)


def kill(child: Child) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def reap(server: PreforkServer) -> None:
    """Tell clients how their child ended; a signal counts as 128 + its number, as in a shell."""
    while server.children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        child = server.children.pop(pid)
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(KeyError, ValueError):
            server.selector.unregister(child.client)
        with contextlib.suppress(OSError):
            child.client.sendall(DONE + bytes([code if code >= 0 else 128 - code]))
        child.client.close()


def run_child(call: ForkedCall) -> NoReturn:
    """Run the call, then leave at once: taking the interpreter down would take longer than most stages."""
    run = import_module(COMMANDS).run
    sys.argv = ["rla", *call.arguments]
    status = 1
    try:
        status = run(call.arguments)
    except Exception:
        traceback.print_exc()
    end_at_once(status)


def main(arguments: list[str]) -> int:
    """`<file descriptor of the listening socket> <its path> <parent or 0> <idle seconds> <fingerprint>`."""
    descriptor, parent, idle = int(arguments[0]), int(arguments[2]), float(arguments[3])
    path = Path(arguments[1])
    listener, server = socket.socket(fileno=descriptor), os.getpid()
    try:
        preload_commands()
        call = serve_calls(PreforkServer(listener=listener, fingerprint=arguments[4], parent=parent, idle_seconds=idle))
    except BaseException:
        if os.getpid() == server:  # a child leaves the socket to the others
            path.unlink(missing_ok=True)
        raise
    if call is None:
        path.unlink(missing_ok=True)
        return 0
    run_child(call)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
