"""Boxes without isolation: resource limits, no processes and no sockets, but access to all of the user's files.

For trusted programs if bubblewrap and SandboxFusion are not available; never chosen automatically. A program works in a
private folder, is alone in its process group, and cannot leave it.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import tempfile
import time
from pathlib import Path

from rla.errors import UserError
from rla_programs.execution import controller
from rla_programs.execution.box import Launch
from rla_programs.execution.interpreter import base_program
from rla_programs.execution.local import LocalRequest, LocalSandbox

CONTROLLER = Path(controller.__file__).read_bytes()
PREFIX, REMOVED = "rla-program-", "rla-removed-"
NEWBORN_S = 60.0  # a younger folder may not be locked yet


def _launch_program(request: LocalRequest) -> Launch:
    """Raises OSError."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    held = _held_folder(folder)
    work, program, own = folder / "work", folder / "program.py", folder / "controller.py"
    try:
        work.mkdir()
        own.write_bytes(CONTROLLER)
        program.write_bytes(request.source)
    except OSError:
        remove(folder)
        os.close(held)
        raise
    command = ["env", "-C", str(work), base_program(), "-s", "-P", "-S", "-B", "-X", "utf8", str(own)]
    command += [str(request.control), str(program), str(work), "0", "-1", "0", ",".join(request.preload)]

    def cleanup() -> None:
        remove(folder)
        os.close(held)

    return Launch(command=command, cleanup=cleanup)


def _held_folder(folder: Path) -> int:
    """A descriptor whose lock marks the folder as in use while this process lives. Raises OSError if it is in use."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        raise
    return held


def _remove_abandoned(*, older_than_s: float = NEWBORN_S) -> None:
    """Remove folders that killed stages of this user have left behind."""
    for name in (PREFIX, REMOVED):
        for folder in Path(tempfile.gettempdir()).glob(f"{name}*"):
            with contextlib.suppress(OSError):  # already gone, in use, or another user's
                status = folder.lstat()
                if status.st_uid == os.geteuid() and status.st_mtime < time.time() - older_than_s:
                    held = _held_folder(folder)
                    remove(folder)
                    os.close(held)


def remove(folder: Path) -> None:
    """Remove a folder, even if a program has denied access to it, or nested it deeper than paths or recursion allow.
    The rest of a folder that cannot be removed stays, because the run is not to blame.
    """
    with contextlib.suppress(OSError):
        top = Path(tempfile.mkdtemp(prefix=REMOVED))
        names = map(str, itertools.count())
        pending = [lifted(folder, top / next(names))]
        while pending:
            current = pending.pop()
            for entry in list(os.scandir(current)):
                if entry.is_dir(follow_symlinks=False):
                    pending.append(lifted(Path(entry.path), top / next(names)))
                else:
                    os.unlink(entry.path)
            current.rmdir()
        top.rmdir()


def lifted(folder: Path, target: Path) -> Path:
    """The folder, made readable and moved to `target`. Raises OSError."""
    folder.chmod(0o700)  # an inaccessible folder cannot be moved either
    return folder.rename(target)


def rlimits(*, workers: int) -> LocalSandbox:
    """Raises UserError if programs cannot be confined at all."""
    _remove_abandoned()
    sandbox = LocalSandbox(_launch_program, workers=workers, bounds_tasks=False)
    if refusal := sandbox.refusal(kind=("rlimits", base_program())):
        raise UserError(f"env.own.execution.backend is rlimits, but no program runs so here ({refusal})")
    return sandbox
