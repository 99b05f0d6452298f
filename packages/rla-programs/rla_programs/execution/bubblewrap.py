"""Boxes of bubblewrap: own namespaces for processes, network, mounts, IPC and host name, without access to the host.

In the box there are, read-only, the interpreter with its standard library and the system's libraries; a new /proc, five
devices, the program, and one private tmpfs with a limited size and number of files. As root, the namespaces are started
directly and the controller becomes a user that is not used otherwise: the kernel would not count processes of root, and
root of a user namespace still owns the files of root. Other users need a user namespace.
"""

from __future__ import annotations

import itertools
import os
import shutil
from dataclasses import replace
from pathlib import Path

from rla.errors import UserError
from rla_programs.execution import controller
from rla_programs.execution.box import Launch
from rla_programs.execution.cgroups import box_group, delegated, remove_empty
from rla_programs.execution.interpreter import Interpreter, base_interpreter
from rla_programs.execution.local import LocalRequest, LocalSandbox

PROGRAM, CONTROLLER = "/box/program.py", "/box/controller.py"
WORKS = ("/tmp", "/var/tmp", "/box/tmp")  # the first that does not hide a part of the interpreter; `tempfile` knows two
INODES = 4096  # files of a program; an empty one takes more than a kilobyte of kernel memory
HIDDEN = ("acpi", "bus", "fs", "irq", "kcore", "keys", "scsi", "sys", "sysrq-trigger", "timer_list")
READ = ("/etc/ld.so.cache", "/usr/lib/locale", "/usr/share/zoneinfo")
DEVICES = ("null", "zero", "full", "random", "urandom")
LINKS = {"/dev/fd": "/proc/self/fd"} | {
    f"/dev/{name}": f"/proc/self/fd/{number}" for number, name in enumerate(("stdin", "stdout", "stderr"))
}
FIRST_USER, SLOTS = 1 << 30, 1 << 8  # user ids that no system assigns: one for each box of a live process
AS_ROOT = "run it as another user, or give this root CAP_SYS_ADMIN (a container: --privileged)"
AS_USER = (
    "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; "
    "in a container its seccomp profile, too)"
)

_slots = itertools.count()


class Bubblewrap:
    """Starts boxes. `as_root`: as root, else with a user namespace. `numbering`: the controller may set process ids.

    `chosen`, `others`: the setting that wants such boxes and the choices beside it, for errors.
    """

    inodes = INODES
    chosen = "env.own.execution.backend is bubblewrap"
    others = ", or choose env.own.execution.backend: sandboxfusion (a server), or rlimits for programs that you trust"

    def __init__(self, bwrap: str, *, as_root: bool, numbering: bool) -> None:
        self._bwrap, self._as_root, self._groups = bwrap, as_root, delegated()
        self._kept = ["--cap-add", "CAP_CHECKPOINT_RESTORE"] if numbering else []
        if self._groups is not None:
            remove_empty(self._groups)
        python = base_interpreter()
        self._python, self._work = python.program, _working_folder(python)
        self._root = [*system(), *bound(python), *devices(self._work)]
        # read once, so that a stage uses one version of the code
        self._controller = Path(controller.__file__).read_bytes()

    def __call__(self, request: LocalRequest) -> Launch:
        """Raises OSError."""
        user = FIRST_USER + os.getpid() % (1 << 22) * SLOTS + next(_slots) % SLOTS if self._as_root else 0
        group = None if self._groups is None else box_group(self._groups, request.limits)
        files = {path: in_memory(data) for path, data in self._contents(request, user).items()}
        data = [text for path, fd in files.items() for text in ("--perms", "0555", "--ro-bind-data", str(fd), path)]
        command = [self._bwrap, *self._namespaces(), *self._mounts(data, request.limits.file_mb << 20), "--"]
        command += [self._python, "-s", "-P", "-S", "-B", "-X", "utf8", CONTROLLER, str(request.control)]
        joining = () if group is None else (group.joining,)
        command += [PROGRAM, self._work, str(self.inodes), *map(str, joining or (-1,)), str(user)]
        command += [",".join(request.preload)]
        launch = Launch(command=command, files=(*files.values(), *joining), owner=user)
        return launch if group is None else replace(launch, cleanup=group.remove, starved=group.starved)

    def _contents(self, request: LocalRequest, user: int) -> dict[str, bytes]:
        """Files of the box, by path. `user`: the one that the controller becomes, 0 for the same."""
        return {PROGRAM: request.source, CONTROLLER: self._controller}

    def _mounts(self, data: list[str], size: int) -> list[str]:
        """Flags for everything that is visible in a box. `data` shows its files; it may write `size` bytes."""
        work = ["--perms", "1777", "--size", str(size), "--tmpfs", self._work, "--chdir", self._work]
        return [*self._root, *data, *work, "--remount-ro", "/"]

    def _namespaces(self) -> list[str]:
        flags = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        flags += ["--hostname", "box", "--die-with-parent", "--as-pid-1", "--new-session"]
        flags += ["--clearenv", "--setenv", "PYTHONHASHSEED", "0", "--setenv", "PYTHONCOERCECLOCALE", "0"]
        if self._as_root:
            flags += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
        else:
            flags += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
        return [
            *flags,
            "--cap-add",
            "CAP_SYS_ADMIN",
            *self._kept,
        ]  # for the controller, which drops the first at once


def in_memory(data: bytes) -> int:
    """A descriptor that reads `data`."""
    fd = os.memfd_create("box")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def system() -> list[str]:
    """/lib and the like if they are links into /usr, the outermost folders, and /proc."""
    flags = ["--dir", "/box", "--dir", "/tmp"]
    for top in ("/lib", "/lib32", "/lib64", "/libx32"):
        if os.path.islink(top):
            flags += ["--symlink", os.readlink(top), top]
    return [*flags, *processes()]


def processes() -> list[str]:
    """A /proc with the box's own processes, without writable files of the whole kernel."""
    flags = ["--proc", "/proc"]
    for name in HIDDEN:
        if os.path.isdir(f"/proc/{name}"):
            flags += ["--size", "4096", "--tmpfs", f"/proc/{name}", "--remount-ro", f"/proc/{name}"]
        elif os.path.exists(f"/proc/{name}"):
            flags += ["--ro-bind", "/dev/null", f"/proc/{name}"]
    return flags


def bound(python: Interpreter) -> list[str]:
    """The interpreter at its original paths, without other packages, and the system files that its library reads."""
    paths = (*python.folders, *python.files, *filter(os.path.exists, READ))
    above = {str(folder): None for path in paths for folder in reversed(Path(path).parents[:-1])}
    # readable for the user that the controller becomes
    flags = [text for folder in above for text in ("--dir", folder)]
    flags += [text for path in paths for text in ("--ro-bind", path, path)]
    for path in python.hidden:
        flags += ["--size", "4096", "--tmpfs", path, "--remount-ro", path]
    return flags


def _working_folder(python: Interpreter) -> str:
    """The folder in which a program works and writes."""
    taken = [Path(path) for path in (*python.folders, *python.files)]
    return next(work for work in WORKS if not any(path.is_relative_to(work) for path in taken))


def devices(work: str) -> list[str]:
    flags = ["--perms", "0755", "--size", "65536", "--tmpfs", "/dev"]
    for name in DEVICES:
        flags += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for link, target in {**LINKS, "/dev/shm": work}.items():
        flags += ["--symlink", target, link]
    return [*flags, "--remount-ro", "/dev"]


def is_root() -> bool:
    """Whether this is root of the machine, and not of a user namespace."""
    return os.geteuid() == 0 and Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]


def remedy(refusal: str, *, as_root: bool) -> str:
    """The remedy: either the interpreter does not start, or the box."""
    if "execvp" in refusal:
        return "use an interpreter of another place, such as one below /usr or /opt"
    return f"{AS_ROOT if as_root else AS_USER}, use bubblewrap 0.8 or newer"


def bubblewrap(*, workers: int, kind: type[Bubblewrap] = Bubblewrap) -> LocalSandbox:
    """A sandbox with bubblewrap and boxes of this kind. Raises UserError if bubblewrap cannot work here."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise UserError(
            f"{kind.chosen}, but bwrap is not installed: install the package bubblewrap (0.8 or newer){kind.others}"
        )
    as_root = is_root()
    for numbering in (True, False):  # an old bubblewrap or a restricted container does not know that capability
        launcher = kind(bwrap, as_root=as_root, numbering=numbering)
        sandbox = LocalSandbox(launcher, workers=workers, bounds_tasks=True)
        if not (refusal := sandbox.refusal(kind=(kind, bwrap, as_root, numbering))):
            return sandbox
    else:
        raise UserError(
            f"{kind.chosen}, but it starts no sandbox here ({refusal}): {remedy(refusal, as_root=as_root)}{kind.others}"
        )
