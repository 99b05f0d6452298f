"""The sandbox of a local machine: bubblewrap with namespaces of its own for everything, and no network.

Inside there are, read-only, /usr and the parts of /etc that applications read, and a home and temporary files of
limited size in memory. The programs that a model's actions start run inside and see no other files of the host. If root
builds the sandbox, they run as a user without any files. Otherwise they run as the user who builds it, in a user
namespace, and only the sandbox keeps them from that user's files.
"""

from __future__ import annotations

import errno
import itertools
import os
import platform
import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rla_programs.execution.bubblewrap import FIRST_USER, SLOTS, devices, in_memory, is_root, processes, remedy
from rla_programs.execution.filters import ALLOW, DENIED, MACHINES, RETURN, fails, only, with_head
from rla_programs.execution.interpreter import Interpreter, base_interpreter

from rla.errors import UserError

HOME, CODE, PROGRAMS = "/home/user", "/box/code", "/box/programs"
GUEST = Path(__file__).with_name("guest")
OURS = Path(__file__).resolve().parents[1]  # the package itself
NEEDED = {"Xvfb": "xvfb", "openbox": "openbox", "dbus-daemon": "dbus", "wmctrl": "wmctrl", "bwrap": "bubblewrap"}
ETC = (
    *("alternatives", "fonts", "xdg", "X11", "libreoffice", "gtk-3.0", "dbus-1", "mime.types", "ld.so.cache"),
    *("localtime", "mousepad", "at-spi2", "vdpau_wrapper.cfg"),
)
READ = ("/var/cache/fontconfig", "/var/lib/libreoffice")
STARTER = f'import runpy,sys;sys.path.insert(0,"{CODE}");runpy.run_module(sys.argv.pop(1),run_name="__main__")'
# System calls that desktops need and the other sandbox refuses.
ALLOWED = frozenset(
    {
        *("socket", "memfd_create", "inotify_init", "inotify_init1", "shmget", "semget", "personality"),
        *("setpriority", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr", "ioprio_set"),
    }
)
_users = itertools.count(SLOTS // 2)


def _seccomp_filter() -> bytes:
    """Refuses namespaces, mounts, and access to other processes."""
    machine = platform.machine()
    if machine not in MACHINES:
        raise UserError(f"env.own.machine is local, and {machine} has no filter of system calls")
    column = MACHINES[machine][0]
    code = with_head(machine)
    code += [
        line
        for name, numbers in DENIED.items()
        if name not in ALLOWED
        for line in only(numbers[column], [fails(errno.EPERM)])
    ]
    code.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("=HBBI", *line) for line in code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walled:
    """A command that starts a machine. `files`: descriptors for this command only; `user`: 0 for the same user."""

    command: list[str]
    files: tuple[int, ...]
    user: int


class Walls:
    """The sandbox of machines on this host. Raises UserError if it is not available."""

    def __init__(self, *, disk_mb: int, beside: Sequence[str] = ()) -> None:
        """`beside`: further paths that are readable inside."""
        missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
        if missing:
            raise UserError(f"env.own.machine is local: install {' '.join(missing)} (Debian), or name another machine")
        self._as_root, self._disk = is_root(), str(disk_mb << 20)
        self._python: Interpreter = base_interpreter()
        self._beside = tuple(beside)
        self._filter = _seccomp_filter()

    @property
    def python(self) -> str:
        return self._python.program

    def module(self, name: str, *arguments: str, python: str = "") -> list[str]:
        """A command, for inside, that runs one of our modules."""
        return [python or self.python, "-B", "-c", STARTER, f"rla_screens.desktop.guest.{name}", *arguments]

    def around(self, command: Sequence[str], *, joining: int = -1) -> Walled:
        """`command` gets `user` and `group` in place of %USER and %GROUP. Raises OSError."""
        user = FIRST_USER + os.getpid() % (1 << 22) * SLOTS + next(_users) % SLOTS if self._as_root else 0
        number = user or 1000
        texts = {
            "/etc/passwd": f"user:x:{number}:{number}:user:{HOME}:/bin/sh\n",
            "/etc/group": f"user:x:{number}:\n",
            "/etc/machine-id": f"{0:032x}\n",
            "/etc/hosts": "127.0.0.1 localhost box\n",
        }
        files = {path: in_memory(text.encode()) for path, text in texts.items()}
        confined = in_memory(self._filter)
        flags = [*self._namespaces(), *self._system()]
        for path, fd in files.items():
            flags += ["--perms", "0444", "--ro-bind-data", str(fd), path]
        flags += [*self._private(), "--remount-ro", "/", "--chdir", HOME, "--seccomp", str(confined)]
        inner = [word.replace("%USER", str(user)).replace("%GROUP", str(joining)) for word in command]
        bwrap = shutil.which("bwrap")
        assert bwrap is not None  # checked through NEEDED
        return Walled(command=[bwrap, *flags, "--", *inner], files=(*files.values(), confined), user=user)

    def why_not(self, said: str) -> str:
        """The remedy if bubblewrap has refused; empty for other messages."""
        return f"; {remedy(said, as_root=self._as_root)}" if said.startswith("bwrap:") else ""

    def _namespaces(self) -> list[str]:
        flags = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        flags += ["--hostname", "box", "--die-with-parent", "--as-pid-1", "--new-session", "--clearenv"]
        if self._as_root:
            return [*flags, "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        return [*flags, "--unshare-user", "--uid", "1000", "--gid", "1000"]

    def _system(self) -> list[str]:
        flags = ["--ro-bind", "/usr", "/usr", "--dir", "/box", "--dir", "/tmp", *processes()]
        for top in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
            if os.path.islink(top):
                flags += ["--symlink", os.readlink(top), top]
        outside = [path for path in (*self._python.folders, *self._python.files) if not path.startswith("/usr/")]
        etc = [f"/etc/{name}" for name in ETC]
        flags += _readable_paths([*filter(os.path.exists, (*etc, *READ)), *outside])
        if str(OURS).startswith("/usr/"):  # task solutions are stored next to the code
            flags += ["--size", "4096", "--tmpfs", str(OURS)]
        for path in self._python.hidden:
            flags += ["--size", "4096", "--tmpfs", path, "--remount-ro", path]
        inside = (CODE, f"{CODE}/rla_screens", f"{CODE}/rla_screens/desktop", PROGRAMS, "/home")
        flags += [text for folder in inside for text in ("--dir", folder)]
        flags += ["--ro-bind", str(GUEST), f"{CODE}/rla_screens/desktop/guest"]
        for name in ("python", "python3"):
            flags += ["--symlink", self.python, f"{PROGRAMS}/{name}"]
        return flags

    def _private(self) -> list[str]:
        flags = devices("/tmp")
        for place in (HOME, "/tmp", "/var/tmp"):
            flags += ["--perms", "1777", "--size", self._disk, "--tmpfs", place]
        return flags + _readable_paths(self._beside)  # they may lie below one of these


def _readable_paths(paths: Sequence[str]) -> list[str]:
    """Flags that show paths at their original places, below folders that any user can read."""
    above = dict.fromkeys(str(top) for path in paths for top in reversed(Path(path).parents[:-1]))
    flags = [text for folder in above if folder != "/usr" for text in ("--dir", folder)]
    return flags + [text for path in paths for text in ("--ro-bind", os.path.realpath(path), path)]
