"""The client's end: send this process's call to the server, pass signals on, return the exit status."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence

from rla.processes.prefork.handover import ACCEPTED, DONE, RUN, fingerprint, receive_exactly

PATIENCE = 60.0  # seconds; a server that has just been started answers when its imports are done
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOST = 70  # the server died under a running child: nothing is known about its end


def prefork_request(kind: str, arguments: Sequence[str]) -> bytes:
    """The JSON of a request, with everything that the child needs to stand in for this process."""
    message = {
        "kind": kind,
        "fingerprint": fingerprint(os.environ),
        "arguments": list(arguments),
        "cwd": os.getcwd(),
        "environment": dict(os.environ),
        "umask": current_umask(),
    }
    return json.dumps(message).encode("utf-8", "surrogateescape")


def current_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def ask_prefork(path: str, kind: str, arguments: Sequence[str] = ()) -> socket.socket | None:
    """A connection on which the server has accepted the request; None where there is no such server."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(PATIENCE)
    try:
        data = prefork_request(kind, arguments)
        connection.connect(path)
        socket.send_fds(connection, [len(data).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(data)
        if receive_exactly(connection, 1) == ACCEPTED:
            connection.settimeout(None)
            return connection
    except (OSError, EOFError, UnicodeError):
        pass  # no server, a dead one, or streams that cannot be sent: this process does the work
    connection.close()
    return None


def forward_call(path: str, arguments: Sequence[str]) -> int | None:
    """Run `rla <arguments>` in a child of the server at `path`; None, said on stderr, where it must run here."""
    sys.stdout.flush()
    connection = ask_prefork(path, RUN, arguments)
    if connection is None:
        if sys.stderr is not None:
            sys.stderr.write(f"note: {path}: no pre-fork server of this code and environment; this starts slower\n")
        return None

    def pass_on(number: int, _: object) -> None:
        connection.send(bytes([number]))

    for number in FORWARDED:
        signal.signal(number, pass_on)
    try:
        if receive_exactly(connection, 1) == DONE:
            return receive_exactly(connection, 1)[0]
    except (EOFError, OSError):
        pass  # reported below
    sys.stderr.write("error: the pre-fork server ended while the command ran; call it again\n")
    return LOST
