"""Errors, Ctrl-C and SIGTERM of commands of the core and of packages, and options that they share."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import Event, current_thread, main_thread
from types import FrameType
from typing import Annotated, Any, ParamSpec

import typer

from rla.errors import UserError
from rla.processes import rank, speaks

Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one parameter.")]
LOOKING = ("report", "judge-accuracy")  # stages that take the newest run unless one is named
NEWEST = "by default the newest below runs"  # of commands that look at a run
LONGEST_ERROR = 2000  # characters
INTERRUPTED = "interrupted: the same command goes on where this one stopped"
P = ParamSpec("P")


def guarded_command(command: Callable[P, Any]) -> Callable[P, None]:
    @wraps(command)
    def call(*args: P.args, **options: P.kwargs) -> None:
        guard(lambda: command(*args, **options))

    return call


def guard(call: Callable[[], Any]) -> None:
    """Run `call`. Errors that the user can fix become one line and exit code 2, an interrupt 130, SIGTERM 143.

    `sys.exit` in an environment or a library is an error, too, because its status 0 would look like success.
    """
    ended = Event()
    try:
        with _terminated_as_interrupted(ended):
            call()
    except (KeyboardInterrupt, SystemExit, Exception) as error:
        if ended.is_set() or _from_interrupt(error):  # a library that is imported may raise another error from it
            if speaks():
                typer.echo(INTERRUPTED, err=True)
            raise typer.Exit(128 + (signal.SIGTERM if ended.is_set() else signal.SIGINT)) from None
        text = _message(error)
        if text is None:
            raise  # a bug, with its traceback
        if rank() == 0:  # the other ranks have the same error
            line = "".join(
                letter if letter.isprintable() else " " if letter.isspace() else repr(letter)[1:-1] for letter in text
            )  # an error may quote untrusted text
            cut = line if len(line) <= LONGEST_ERROR else f"{line[:LONGEST_ERROR]} ..."
            typer.echo(f"error: {cut}", err=True)
        raise typer.Exit(2) from None


def _from_interrupt(error: BaseException | None) -> bool:
    """Whether an error was raised while a KeyboardInterrupt was handled."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _message(error: BaseException) -> str | None:
    """The message for an error that the user can fix; None for a bug."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, SystemExit):
        return f"an environment or a library ended the program by sys.exit({error.code!r}), so nothing was finished"
    from rla.envs.observation import EnvironmentFailure  # costs each command a hundredth of a second

    if isinstance(error, EnvironmentFailure):  # outside of an episode, such as for the frozen probe
        return (
            f"the environment failed: {error}; call the command again, it goes on where it stopped. If it fails again, "
            "`rla envs --check` plays the environment and says at what"
        )
    return system_refusal(error)


@contextmanager
def _terminated_as_interrupted(ended: Event) -> Iterator[None]:
    """Inside, SIGTERM sets `ended` and acts as Ctrl-C: the scheduler cancels its episodes, finished groups stay, and no
    process is left running. A launcher ends its own processes.
    """

    def on_terminate(_: int, frame: FrameType | None) -> None:
        ended.set()
        interrupt = signal.getsignal(signal.SIGINT)  # asyncio's own, while it runs
        (interrupt if callable(interrupt) else signal.default_int_handler)(signal.SIGINT, frame)

    if current_thread() is not main_thread() or "WORLD_SIZE" in os.environ:
        yield
        return
    before = signal.signal(signal.SIGTERM, on_terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


REFUSALS = {
    getattr(errno, name)
    for name in (
        *("EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "EFBIG", "EIO", "ESTALE", "ENAMETOOLONG"),
        *("ENOTDIR", "EISDIR", "ELOOP", "EMFILE", "ENFILE", "EBUSY", "EEXIST", "ENOTEMPTY"),
    )
}
NUMBERED = re.compile(r"\(os error (\d+)\)|\[errno (\d+)\]", re.IGNORECASE)
REMEDY = "mend that and call the command again: what is finished is kept"


def system_refusal(error: BaseException) -> str | None:
    """The message for an error of the system, such as a full disk or a read-only folder; None for other errors.
    `rla.store.atomic` reports its own. Libraries raise errors of other classes, in Rust with the number in the text.
    """
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list) and error.args[0]:
        _, target, reason = error.args[0][0]
        return f"{target}: {reason}; {REMEDY}"
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := NUMBERED.search(str(error))):
        number = int(found[1] or found[2])
    renamed = isinstance(error, OSError) and number == errno.ENOENT and error.filename2 is not None  # by NFS
    if number is None or (number not in REFUSALS and not renamed):
        return None
    place = error.filename2 or error.filename if isinstance(error, OSError) else None
    prefix = f"{os.fsdecode(place)}: " if isinstance(place, str | bytes | os.PathLike) else ""
    return f"{prefix}the system refuses it ({os.strerror(number)}); {REMEDY}"
