"""Start, stop and ask after the server."""

from __future__ import annotations

import os
from pathlib import Path

from rla.processes.prefork.client import ask_prefork
from rla.processes.prefork.handover import PING, STOP, fingerprint
from rla.processes.sockets import answers, begun, end_server, listening

LOG = "prefork.log"
# numpy and pyarrow start threads when they are imported, and asking CUDA for its devices makes it unusable in
# forked children: a server must do neither.
FORKABLE = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}


def start_prefork(path: Path, *, parent: int = 0, idle_minutes: float = 10.0) -> str:
    """Start a server on the socket `path`; returns at once, calls wait until its imports are done.

    Raises UserError where the socket's folder may be entered by other users.
    """
    path = path.absolute()
    listener = listening(path)
    if listener is None:
        return f"{path}: a server runs already"
    arguments = [str(listener.fileno()), str(path), str(parent), str(idle_minutes * 60)]
    arguments.append(fingerprint(os.environ))
    server = begun("rla.processes.prefork.server", arguments, listener, log=path.parent / LOG, environment=FORKABLE)
    return f"{path}: server {server} started"


def prefork_state(path: Path) -> str:
    """Whether the server at `path` would take this process's calls."""
    if not answers(path):
        return f"{path}: no server"
    connection = ask_prefork(str(path), PING)
    if connection is None:
        return f"{path}: a server of other code or environment; calls run by themselves"
    connection.close()
    return f"{path}: ready"


def stop_prefork(path: Path) -> str:
    """End the server and whatever it runs; also one of other code."""
    return end_server(path, lambda: ask_prefork(str(path), STOP))
