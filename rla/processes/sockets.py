"""Servers behind a private Unix socket: begin one, ask whether one answers, end it."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rla.errors import UserError


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


def begun(
    module: str,
    arguments: Sequence[str],
    listener: socket.socket,
    *,
    log: Path,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Start `python -m module` in the background with the listening socket, which is closed here; its process."""
    with log.open("ab") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | dict(environment or {}),
            pass_fds=(listener.fileno(),),
            start_new_session=True,
        )
    listener.close()
    return server.pid


def end_server(path: Path, tell: Callable[[], socket.socket | None]) -> str:
    """Have `tell` ask the server at `path` to stop, where there is one."""
    if not answers(path):
        path.unlink(missing_ok=True)
        return f"{path}: no server"
    connection = tell()
    if connection is not None:
        connection.close()
    return f"{path}: stopped"
