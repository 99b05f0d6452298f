"""The files that an interpreter needs for programs of the standard library: paths on this machine, and nothing else.

`site-packages` and `dist-packages` are left out, like everything else in an installation: if `rla` is installed into
the interpreter itself, a program could read the solutions of the built-in problems there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rla.errors import UserError

ANSWER_S = 60.0
SYSTEM = ("/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32")
PACKAGES = ("site-packages", "dist-packages")
OURS = Path(__file__).resolve().parents[1]  # the package itself
# Loads every extension module, and lists the names under which the loader has found their and the interpreter's
# libraries.
ASKED = """
import ctypes, glob, json, os, sys, sysconfig
class Loaded(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]
names = []
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Loaded), ctypes.c_size_t, ctypes.c_void_p)
def note(loaded, size, data):
    names.append(os.fsdecode(loaded.contents.name or b""))
    return 0
for folder in sys.path:
    for path in glob.glob(os.path.join(glob.escape(folder), "*.so")) if folder.endswith("lib-dynload") else ():
        try:
            ctypes.CDLL(path)
        except OSError:
            pass
ctypes.CDLL(None).dl_iterate_phdr(note, None)
print(json.dumps([[sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")], names]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """Absolute paths. `folders`: the standard library and the system's library folders, none below another. `files`:
    the program itself and libraries in other places. `hidden`: folders inside `folders` to leave out.
    """

    program: str
    folders: tuple[str, ...]
    files: tuple[str, ...]
    hidden: tuple[str, ...]


def base_program() -> str:
    """The path of the interpreter of this process, or of the one behind its virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def base_interpreter() -> Interpreter:
    """The interpreter of `base_program`. Raises UserError."""
    return _asked(base_program())


@cache  # asking takes longer than starting a box
def _asked(program: str) -> Interpreter:
    try:
        command = [program, "-I", "-S", "-B", "-c", ASKED]
        done = subprocess.run(command, capture_output=True, check=True, timeout=ANSWER_S, cwd="/")
        libraries, names = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UserError(f"{program}: cannot say what it needs to run ({error}); use another installation") from None
    return interpreter_of(program, libraries, names)


def interpreter_of(program: str, libraries: list[str], names: list[str]) -> Interpreter:
    """`libraries`: the standard library; `names`: how the loader found each shared object."""
    shared = [  # a name may be a link, and the loader looks for that name
        os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name))
        for name in names
        if os.path.isabs(name)
    ]
    system = {os.path.dirname(path) for path in shared if _below(path, SYSTEM)}
    folders = _outermost({*map(os.path.realpath, libraries), *system})
    files = dict.fromkeys(path for path in (program, *shared) if not _below(path, folders))
    return Interpreter(program=program, folders=folders, files=tuple(files), hidden=_hidden(folders))


def _hidden(folders: tuple[str, ...]) -> tuple[str, ...]:
    found = {
        path.resolve()
        for folder in folders
        for name in PACKAGES
        for path in (Path(folder, name), *Path(folder).glob(f"*/{name}"))
        if path.is_dir()
    }
    return _outermost({str(path) for path in found | {OURS} if _below(str(path), folders)})


def _outermost(paths: set[str]) -> tuple[str, ...]:
    return tuple(sorted(path for path in paths if not _below(path, paths - {path})))


def _below(path: str, folders: tuple[str, ...] | set[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)
