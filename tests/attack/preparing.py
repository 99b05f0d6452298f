"""The process that all trials are forked from: every import is done, and changes of files are numbered.

`started` begins the program anew under LD_PRELOAD, because a library can be put before libc only when a process starts.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import importlib.util
import os
import subprocess
import sys
from enum import IntEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from rla.__main__ import SPIN
from rla.pipeline.run import FORKABLE, PRELOADED

TOP = Path(__file__).parents[2]
SOURCE = Path(__file__).with_name("file_operations.c")
BESIDES = (  # imported late
    *("deepspeed", "datasets", "peft", "trl", "rla.training.sft"),
    *("matplotlib.figure", "matplotlib.backends.backend_svg"),
)


class Mode(IntEnum):
    """What happens at the operation that is the target; as in `file_operations.c`."""

    KILL = 0
    TORN = 1
    FULL = 2


def code_digest(*places: str) -> str:
    """Of the files at these places below the repository: what was tried of other code is tried anew."""
    found = hashlib.sha256()
    for place in places:
        for path in sorted([TOP / place, *(TOP / place).rglob("*")]):
            if path.suffix in (".py", ".json", ".c", ".txt"):
                found.update(f"{path.relative_to(TOP)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def started(folder: Path) -> None:
    """Compile the library into `folder` and begin this program anew with it; nothing where that is done."""
    library = folder / "file_operations.so"
    if os.environ.get("LD_PRELOAD") == str(library):
        return
    folder.mkdir(parents=True, exist_ok=True)
    building = library.with_suffix(f".{os.getpid()}")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(building), str(SOURCE), "-ldl"], check=True)
    building.replace(library)
    environment = {**os.environ, **FORKABLE, **dict([SPIN]), "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(library)}
    environment |= {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    # What starts threads is imported by each call itself: at least its code is compiled once.
    environment.setdefault("PYTHONPYCACHEPREFIX", str(folder / "compiled"))
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    os.execve(sys.executable, [sys.executable, "-m", "tests.attack", *sys.argv[1:]], environment)


def imported() -> None:
    """Import what stages import. Raises RuntimeError where an import starts a thread: forks could hang."""
    for name in PRELOADED:
        import_module(name)
    for name in BESIDES:
        if name.startswith("rla") or importlib.util.find_spec(name):
            import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise RuntimeError(f"{threads} threads run after the imports")
    gc.collect()
    gc.freeze()


def quickly_imported() -> None:
    """What `make-tasks` imports, and no torch."""
    for name in ("rla.cli.calls", "rla.cli.progress", "pyarrow.parquet", "stages.make_tasks"):
        import_module(name)
    environment = import_module("rla.envs.registry").environment
    environment("alfworld")
    import_module("pyarrow").array([0])  # the first array of Python values imports pandas


@cache
def _library() -> Any:
    return ctypes.CDLL(None)


def armed(root: Path, *, target: int = 0, mode: Mode = Mode.KILL, log: int = -1) -> None:
    """From here on this process's changes below `root` are numbered; `file_operations.c` says the rest."""
    number = ctypes.c_long
    _library().attack_begin(os.fsencode(root), number(target), number(int(mode)), number(log))
