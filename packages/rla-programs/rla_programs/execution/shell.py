"""A shell in a box: bash, the programs of this machine, and an empty file system of its own, for many commands.

Everything may be written except /usr, /etc, /proc and /box. Files stay until the shell is closed; the processes of a
command end with it. There is no network. Python and pytest are in the box, without other packages.
"""

from __future__ import annotations

import base64
import importlib.util
import os
import stat
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rla.text import whole_text
from rla_programs.execution import controller, shell_guest
from rla_programs.execution.box import BoxError, ProgramBox
from rla_programs.execution.bubblewrap import Bubblewrap, bubblewrap, devices, processes
from rla_programs.execution.interpreter import base_interpreter
from rla_programs.execution.local import LocalRequest, LocalSandbox
from rla_programs.execution.records import Call, ExitStatus, Job, Limits, Result
from rla_programs.execution.verdict import controller_question, result

GUEST = Path(shell_guest.__file__).read_text()
PRELOAD = ("base64", "json", "os", "subprocess")
LONGEST = 100_000  # characters of a command: an argument of a program has at most 128 KB
HOME, TOOLS, PACKAGES = "/root", "/box/bin", "/box/packages"
ETC = ("alternatives", "ld.so.cache", "localtime", "magic", "mime.types", "profile", "shells")
PYTEST = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
# pytest reads its settings in the folders above a test, up to the root.
PYTEST_FILES = [f"/{name}" for name in ("conftest.py", "pyproject.toml", "tox.ini", "setup.cfg")]
PYTEST_FILES += [f"/{dot}pytest.{end}" for dot in ("", ".") for end in ("ini", "toml")]
RUN_PYTEST = b"#!/usr/bin/env python3\nimport sys\nimport pytest\nsys.exit(pytest.main())\n"
VARIABLES = {
    "HOME": HOME,
    "LANG": "C.UTF-8",
    "PATH": f"{TOOLS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONNOUSERSITE": "1",  # else every Python of a later command would run files of the home folder
    "PYTHONPATH": PACKAGES,
    "USER": "root",
}
ENDINGS = {
    ExitStatus.TIMEOUT: "[stopped after {seconds:g} seconds]",
    ExitStatus.CPU: "[stopped after {seconds:g} seconds]",
    ExitStatus.OUTPUT: "[stopped because it printed more than {output_kb} KB]",
    ExitStatus.MEMORY: "[stopped because the machine was out of memory]",
}
EMPTY = ("--size", "65536", "--tmpfs")


class ShellBoxes(Bubblewrap):
    """Boxes with the programs of /usr, in which everything else is new and may be written."""

    inodes = 1 << 15
    chosen, others = "a shell for untrusted commands needs bubblewrap", ""

    def __init__(self, bwrap: str, *, as_root: bool, numbering: bool) -> None:
        super().__init__(bwrap, as_root=as_root, numbering=numbering)
        python = base_interpreter()
        self._work = "/"
        self._outside = [path for path in (*python.folders, *python.files) if not path.startswith("/usr/")]
        found = {name: importlib.util.find_spec(name) for name in PYTEST}
        files = [Path(spec.origin) for spec in found.values() if spec is not None and spec.origin]
        self._packages = [file.parent if file.name == "__init__.py" else file for file in files]

    def _contents(self, request: LocalRequest, user: int) -> dict[str, bytes]:
        number = user or 1000
        return {
            **super()._contents(request, user),
            "/etc/passwd": f"root:x:{number}:{number}:root:{HOME}:/bin/bash\n".encode(),
            "/etc/group": f"root:x:{number}:\n".encode(),
            "/etc/hosts": b"127.0.0.1 localhost box\n",
            f"{TOOLS}/pytest": RUN_PYTEST,
        }

    def _mounts(self, data: list[str], size: int) -> list[str]:
        flags = ["--perms", "1777", "--size", str(size), "--tmpfs", "/", "--ro-bind", "/usr", "/usr", *processes()]
        for top in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
            if os.path.islink(top):
                flags += ["--ro-bind", os.path.realpath(top), top]  # a command could move a link
        # A folder above the interpreter that a command could rename would become the program of a later command. So
        # each is in a file system of its own.
        tops = sorted({"/box", "/etc", *(f"/{path.split('/')[1]}" for path in self._outside)} - {"/lib", "/lib64"})
        flags += [text for top in tops for text in (*EMPTY, top)]
        for path in filter(os.path.exists, (*(f"/etc/{name}" for name in ETC), *self._outside)):
            flags += [text for above in reversed(Path(path).parents[:-1]) for text in ("--dir", str(above))]
            flags += ["--ro-bind", path, path]
        flags += ["--dir", TOOLS, "--dir", PACKAGES]
        flags += [text for path in self._packages for text in ("--ro-bind", str(path), f"{PACKAGES}/{path.name}")]
        flags += [*data, *(text for top in tops for text in ("--remount-ro", top))]
        for folder in ("/tmp", "/var", "/var/tmp", *({HOME} - set(tops))):
            flags += ["--perms", "1777", "--dir", folder]
        return [*flags, *devices("/tmp"), "--chdir", "/"]


def untrusted_files(folder: Path, most: int) -> list[Path]:
    """The files and links of a folder, of which none is opened. Raises ValueError for links that lead outside, other
    kinds of files, which may block a reader, and more than `most` bytes.
    """
    found = {path: path.lstat() for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()}
    for path, name, mode in ((path, path.relative_to(folder), entry.st_mode) for path, entry in found.items()):
        if stat.S_ISLNK(mode) and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
            raise ValueError(f"{name} is a link that leads out of the folder")
        if not (stat.S_ISLNK(mode) or stat.S_ISREG(mode)):
            raise ValueError(f"{name} is neither a file nor a folder")
    if sum(entry.st_size for entry in found.values()) > most:
        raise ValueError(f"it is larger than {most >> 20} MB")
    return [*found]


def shell_boxes() -> LocalSandbox:
    """The sandbox for shells. Raises UserError with a remedy if bubblewrap cannot work here."""
    return bubblewrap(workers=1, kind=ShellBoxes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command's output, its exit code (None if it was stopped) and its last folder. `ended`: why it was stopped."""

    text: str
    code: int | None
    folder: str
    ended: str = ""


class Shell:
    """One box. Blocking; `close` may be called from another thread, and ends a command that runs.

    The methods raise BoxError if the box dies for another reason than its memory.
    """

    def __init__(self, sandbox: LocalSandbox, limits: Limits) -> None:
        self._limits, self._lock = limits, threading.Lock()
        self._box: ProgramBox | None = sandbox.box(Job(source=GUEST, limits=limits), preload=PRELOAD)

    def run(self, text: str, folder: str, variables: Mapping[str, str], *, seconds: float, log: str = "") -> Ran:
        """Run a bash command for at most that many seconds. `log`: a file of the box that gets its output."""
        if "\0" in text or len(text) > LONGEST:
            ended = f"[not run: a command has at most {LONGEST} characters, and none is NUL]"
            return Ran(text="", code=None, folder=folder, ended=ended)
        found = self._call("command", whole_text(text), folder, VARIABLES | dict(variables), log, seconds=seconds)
        if found.status is ExitStatus.OK:
            code, last = found.value
            return Ran(text=found.stdout, code=int(code), folder=str(last))
        ended = ENDINGS.get(found.status, "[stopped]").format(seconds=seconds, output_kb=self._limits.output_kb)
        return Ran(text=found.stdout, code=None, folder=folder, ended=ended)

    def place(
        self,
        files: Iterable[tuple[Path, str]],
        *,
        folders: Sequence[str] = (),
        fresh: Sequence[str] = (),
        mode: int = 0,
    ) -> str:
        """Copy files to absolute paths of the box and make folders, after moving away whatever is at `fresh`.

        `mode`: of the copies, 0 for that of each file. Returns why it failed, such as a full disk; empty if it did not.
        """
        packed = [
            (target, mode or path.stat().st_mode & 0o777 | 0o600, base64.b64encode(path.read_bytes()).decode())
            for path, target in files
        ]
        found = self._call("place", packed, list(folders), list(fresh), seconds=self._limits.wall_s)
        if found.status is ExitStatus.OK:
            return ""
        return (found.stderr or found.detail or str(found.status)).strip().splitlines()[-1][:200]

    def texts(self, *paths: str) -> list[str]:
        """The beginnings of files, at most 64 KB each; empty for those that cannot be read."""
        found = self._call("texts", list(paths), seconds=self._limits.wall_s).value
        return [str(text) for text in found] if isinstance(found, list) else [""] * len(paths)

    def close(self) -> None:
        """End every process and remove the files."""
        with self._lock:
            box, self._box = self._box, None
        if box is not None:
            box.close()

    def _call(self, function: str, *arguments: object, seconds: float) -> Result:
        box = self._box
        if box is None:
            raise BoxError("the shell is closed")
        try:
            question = controller_question(Call(function=function, arguments=arguments))
            return result(box.run(controller.CALL, question, seconds), self._limits, called=True)
        except BoxError:
            if box.starved():
                return Result(status=ExitStatus.MEMORY)
            raise
