"""Start, stop and ask after the server, which listens on a Unix socket in a private folder."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

from rla.errors import UserError
from rla.processes.prefork.client import ask_prefork
from rla.processes.prefork.handover import PING, STOP, fingerprint

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
    with (path.parent / LOG).open("ab") as output, listener:
        server = subprocess.Popen(
            [sys.executable, "-m", "rla.processes.prefork.server", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | FORKABLE,
            pass_fds=(listener.fileno(),),
            start_new_session=True,
        )
    return f"{path}: server {server.pid} started"


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
    if not answers(path):
        path.unlink(missing_ok=True)
        return f"{path}: no server"
    connection = ask_prefork(str(path), STOP)
    if connection is not None:
        connection.close()
    return f"{path}: stopped"


def listening(path: Path) -> socket.socket | None:
    """A new socket at `path`, in a private folder, that takes connections from now on; None where a server does.

    Raises UserError where others may enter the folder, or where no socket can be made.
    """
    private_folder(path.parent)
    if answers(path):
        return None
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot make a socket here ({error}); choose a shorter path") from None
    listener.listen(16)
    return listener


def private_folder(folder: Path) -> None:
    """Make the folder with access for its owner only, or check that it is so."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise UserError(f"{folder}: others may enter it; chmod 700, or give --socket in a folder of your own")


def answers(path: Path) -> bool:
    """True where a process listens on the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
