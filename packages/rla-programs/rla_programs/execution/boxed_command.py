"""Any command in a box of bubblewrap: its own processes, user, files and network, in which a single address answers.

In the box there are, read-only, the system's programs and libraries and some folders of the user's; the command's own
folder and a private /tmp, each in memory and of a limited size. `supervisor.py` forwards connections to the address to
a socket of this machine. When the command has ended, the files of its folder are copied to this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from rla_programs.execution import supervisor
from rla_programs.execution.bubblewrap import FIRST_USER, SLOTS, bound, devices, in_memory, is_root, system
from rla_programs.execution.interpreter import base_interpreter
from rla_programs.execution.records import Limits
from rla_programs.execution.session import Session, settings

READ = ("/usr", "/bin", "/sbin", "/etc/ssl", "/etc/alternatives", "/etc/passwd", "/etc/group", "/etc/localtime")
INHERITED = ("PATH", "LANG", "LC_ALL", "TZ")  # of this process's environment
SUPERVISOR, SOCKET = "/box/supervisor.py", "/box/socket"
PORT = 8000  # of the address, in each box's own network

_slots = itertools.count()


class BoxedSession(Session):
    """A command in a box. At its end, the files of the box's folder are in `folder`. `whole`: none is missing."""

    whole = False

    def __init__(self, command: Sequence[str], *, mark: str, fds: Sequence[int], kept: IO[bytes], folder: Path) -> None:
        self._kept, self._folder = kept, folder
        super().__init__(command, env=os.environ, mark=mark, fds=(*fds, kept.fileno()))

    def kill(self) -> None:
        """Have its first process, which is bubblewrap's child, end the others and pack the files."""
        if self._process.poll() is None:
            for pid in supervisor.descendants(self.pid)[0][:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)

    async def end(self) -> None:
        await super().end()
        if not self._kept.closed:
            await asyncio.to_thread(self._unpack)

    def _unpack(self) -> None:
        """The archive is empty if the supervisor was killed, and incomplete if the files are too many or too large."""
        self._kept.seek(0)
        with self._kept, contextlib.suppress(OSError, tarfile.TarError), tarfile.open(fileobj=self._kept) as files:
            for one in files:
                if one.name == supervisor.WHOLE:
                    self.whole = True
                elif one.isreg() or one.isdir() or one.islnk():
                    files.extract(one, self._folder, filter="data")


class CommandBox:
    """Puts commands into boxes. `readable`: folders. Processes and threads, the memory of each process, and the size of
    each file and of each of the two places for files are limited.
    """

    def __init__(self, *, readable: Sequence[str], limits: Limits) -> None:
        """Raises UserError if the interpreter cannot be bound."""
        python = base_interpreter()
        self._python, self._limits, self._as_root = python.program, limits, is_root()
        self._script = Path(supervisor.__file__).read_bytes()
        flags = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        flags += ["--hostname", "box", "--die-with-parent", "--as-pid-1", "--clearenv"]
        if self._as_root:
            flags += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            flags += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
        flags += [*system(), *self._writable("/tmp")]
        paths = [*filter(os.path.exists, READ), *map(os.path.abspath, readable)]
        above = {str(folder): None for path in paths for folder in reversed(Path(path).parents[:-1])}
        flags += [text for folder in above for text in ("--perms", "0755", "--dir", folder)]  # by default the owner's
        for path in paths:
            flags += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
        flags += [*bound(python), *devices("/tmp")]
        for link, target in _links_between(paths).items():
            flags += ["--symlink", target, link]
        self._flags = flags

    def _writable(self, folder: str) -> list[str]:
        return ["--perms", "1777", "--size", str(self._limits.file_mb << 20), "--tmpfs", folder]

    def session(
        self, command: Sequence[str], *, env: Mapping[str, str], folder: Path, socket: Path, mark: str
    ) -> BoxedSession:
        """The command in a new box with the files of `folder`, which is HOME. The Unix socket, to which everybody may
        write, answers at 127.0.0.1:PORT. Raises OSError.
        """
        user = FIRST_USER + os.getpid() % (1 << 22) * SLOTS + next(_slots) % SLOTS if self._as_root else 0
        files = {path: in_memory(path.read_bytes()) for path in folder.iterdir()}
        script, kept = in_memory(self._script), tempfile.TemporaryFile()  # noqa: SIM115 (closed by the session)
        flags = [*self._flags, "--perms", "0444", "--ro-bind-data", str(script), SUPERVISOR]
        flags += ["--ro-bind", str(socket), SOCKET, *self._writable(str(folder))]
        for path, data in files.items():
            flags += ["--perms", "0444", "--file", str(data), str(path)]
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ} | {"HOME": str(folder)}
        flags += [part for name, value in (inherited | dict(env)).items() for part in ("--setenv", name, value)]
        flags += ["--remount-ro", "/"]
        if any("\0" in flag for flag in flags):  # it would begin a flag of its own
            raise ValueError("embedded null byte")
        hidden = in_memory("\0".join(flags).encode())  # other users read command lines, and values may be secrets
        box = settings(self._limits, socket=SOCKET, port=PORT, user=user, folder=str(folder), kept=kept.fileno())
        fds = (script, hidden, *files.values())
        try:
            words = ["bwrap", "--args", str(hidden), "--", self._python, "-I", "-S", SUPERVISOR, box, *command]
            return BoxedSession(words, mark=mark, fds=fds, kept=kept, folder=folder)
        except OSError:
            kept.close()
            raise
        finally:
            for fd in fds:
                os.close(fd)


def _links_between(readable: Sequence[str]) -> dict[str, str]:
    """Link -> target of the links outside of `readable` that lead from a virtual environment to its interpreter."""
    found = {}
    for folder in readable:
        program = os.path.join(folder, "bin", "python")
        while os.path.islink(program):
            target = os.readlink(program)
            if not any(program.startswith(f"{one}/") for one in readable):
                found[program] = target
            program = os.path.join(os.path.dirname(program), target)
    return found
