"""The lock of an output: while a call writes a folder, a second call that would write the same one is refused.

`.<name>.lock` beside the output, held as a POSIX record lock. The system gives such a lock up when its process dies,
however it dies, and a process that the call has started does not keep it. Slices share the lock of the folder, and each
has one of its own.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rla.errors import UserError
from rla.store.slices import WHOLE, Slice


@contextmanager
def lock_outputs(places: Sequence[Path], part: Slice = WHOLE) -> Iterator[None]:
    """Hold the locks of `places`, or of the slice `part` of them, until the block ends.

    Raises UserError if another call holds one of them. If a place cannot be written to, or its file system has no
    locks, there is nothing to hold.
    """
    with ExitStack() as held:
        for place in (one.resolve() for one in places):
            held.enter_context(_locked(place, place.with_name(f".{place.name}.lock"), shared=part.count > 1))
            if part.count > 1:
                held.enter_context(_locked(place, place.with_name(f".{place.name}{part.tag}.lock"), shared=False))
        yield


@contextmanager
def _locked(place: Path, path: Path, *, shared: bool) -> Iterator[None]:
    new = [parent for parent in path.parents if not parent.exists()]
    descriptor = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _acquired(path, shared=shared)
    except BlockingIOError:
        raise UserError(f"{place}: another call is writing it ({_holder(path)}); wait for its end, or end it") from None
    except OSError:  # read-only, or a file system without locks: the call itself says what it cannot write
        pass
    try:
        yield
    finally:
        if descriptor is not None:
            with suppress(OSError):
                if shared:  # other slices may still hold it: then they remove the file
                    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            os.close(descriptor)
        for parent in new:  # of a call that has written nothing
            with suppress(OSError):
                parent.rmdir()


def _acquired(path: Path, *, shared: bool) -> int:
    """The descriptor of the locked file. Raises BlockingIOError if another process holds the lock."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.lockf(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if os.path.samestat(path.lstat(), os.fstat(descriptor)):
                os.truncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
                return descriptor
        except FileNotFoundError:
            pass
        except PermissionError:  # how some systems say that the lock is held
            os.close(descriptor)
            raise BlockingIOError from None
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the call that held it has removed this file: a new one is made


def _holder(path: Path) -> str:
    try:
        return path.read_text()[:200] or "just started"
    except OSError:
        return "just started"
