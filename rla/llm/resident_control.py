"""Start, stop and ask after the resident engine."""

from __future__ import annotations

from pathlib import Path

from rla.llm.resident_client import ask_engine
from rla.llm.resident_messages import PING, STOP, code
from rla.processes.sockets import answers, begun, end_server, listening

LOG = "serve.log"


def start_engine(path: Path, *, parent: int = 0, idle_minutes: float = 30.0) -> str:
    """Start a server on the socket `path`; returns at once, stages wait until its imports are done.

    Raises UserError where the socket's folder may be entered by other users.
    """
    path = path.absolute()
    listener = listening(path)
    if listener is None:
        return f"{path}: a server runs already"
    arguments = [str(listener.fileno()), str(path), str(parent), str(idle_minutes * 60), code()]
    server = begun("rla.llm.resident_server", arguments, listener, log=path.parent / LOG)
    return f"{path}: engine server {server} started"


def engine_status(path: Path) -> str:
    """Whether the server at `path` would take this process's requests."""
    if not answers(path):
        return f"{path}: no server"
    connection = ask_engine(path, PING)
    if connection is None:
        return f"{path}: a server of other code; stages start engines of their own"
    connection.close()
    return f"{path}: ready"


def stop_engine(path: Path) -> str:
    """End the server and its engines; also one of other code."""
    return end_server(path, lambda: ask_engine(path, STOP))
