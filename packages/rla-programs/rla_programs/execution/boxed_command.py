"""Any command in a box of bubblewrap: its own processes, user, files and network, in which a single address answers.

In the box there are, read-only, the system's programs and libraries and some folders of the user's; the command's own
folder, and a private /tmp. `supervisor.py` forwards connections to the address to a socket of this machine.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rla_programs.execution import supervisor
from rla_programs.execution.bubblewrap import FIRST_USER, SLOTS, bound, devices, in_memory, is_root, system
from rla_programs.execution.interpreter import base_interpreter
from rla_programs.execution.rlimits import remove
from rla_programs.execution.session import Session

READ = ("/usr", "/bin", "/sbin", "/etc/ssl", "/etc/alternatives", "/etc/passwd", "/etc/group", "/etc/localtime")
TMP_MB = 256
INHERITED = ("PATH", "LANG", "LC_ALL", "TZ")  # of this process's environment
SUPERVISOR, SOCKET = "/box/supervisor.py", "/box/socket"

_slots = itertools.count()


class CommandBox:
    """Puts commands into boxes. `readable`: folders; `socket`: a path for a Unix socket, which answers at
    127.0.0.1:`port` in every box, and which the caller makes before the first one.
    """

    def __init__(self, *, readable: Sequence[str], port: int, processes: int) -> None:
        """Raises UserError if the interpreter cannot be bound."""
        python = base_interpreter()
        self._python, self._port, self._processes, self._as_root = python.program, port, processes, is_root()
        self._folder = Path(tempfile.mkdtemp(prefix="rla-box-"))
        self._folder.chmod(0o711)
        self.socket = self._folder / "socket"
        self._script = Path(supervisor.__file__).read_bytes()
        flags = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        flags += ["--hostname", "box", "--die-with-parent", "--as-pid-1", "--clearenv"]
        if self._as_root:
            flags += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            flags += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
        flags += [*system(), "--perms", "1777", "--size", str(TMP_MB << 20), "--tmpfs", "/tmp"]
        paths = [*filter(os.path.exists, READ), *map(os.path.abspath, readable)]
        above = {str(folder): None for path in paths for folder in reversed(Path(path).parents[:-1])}
        flags += [text for folder in above for text in ("--perms", "0755", "--dir", folder)]  # by default the owner's
        for path in paths:
            flags += ["--symlink", os.readlink(path), path] if os.path.islink(path) else ["--ro-bind", path, path]
        flags += [*bound(python), *devices("/tmp"), "--ro-bind", str(self.socket), SOCKET]
        for link, target in _links_between(paths).items():
            flags += ["--symlink", target, link]
        self._flags = flags

    def session(self, command: Sequence[str], *, env: Mapping[str, str], folder: Path, mark: str) -> Session:
        """The command in a new box, in which `folder` belongs to its user, and HOME is that folder. Raises OSError."""
        user = FIRST_USER + os.getpid() % (1 << 22) * SLOTS + next(_slots) % SLOTS if self._as_root else 0
        for path in (folder, *folder.iterdir()) if user else ():
            os.chown(path, user, user, follow_symlinks=False)
        script = in_memory(self._script)
        flags = [*self._flags, "--perms", "0444", "--ro-bind-data", str(script), SUPERVISOR]
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ} | {"HOME": str(folder)}
        flags += [part for name, value in (inherited | dict(env)).items() for part in ("--setenv", name, value)]
        flags += ["--bind", str(folder), str(folder), "--remount-ro", "/"]
        if any("\0" in flag for flag in flags):  # it would begin a flag of its own
            raise ValueError("embedded null byte")
        hidden = in_memory("\0".join(flags).encode())  # other users read command lines, and values may be secrets
        starting = [self._python, "-I", "-S", SUPERVISOR, SOCKET, *map(str, (self._port, self._processes, user))]
        try:
            words = ["bwrap", "--args", str(hidden), "--", *starting, *command]
            return Session(words, env=os.environ, mark=mark, fds=(script, hidden))
        finally:
            os.close(script)
            os.close(hidden)

    def close(self) -> None:
        remove(self._folder)


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
