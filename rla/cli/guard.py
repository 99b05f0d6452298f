"""Options and error handling that commands of the core and of packages share: errors, Ctrl-C, SIGTERM."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread, main_thread
from types import FrameType
from typing import Annotated, Any

import typer

from rla.errors import UserError
from rla.pipeline.context import StageSpec
from rla.processes.ranks import rank, speaks

LONGEST_ERROR = 2000  # characters
INTERRUPTED = "interrupted: the same command goes on where this one stopped"


def guard(call: Callable[[], Any]) -> None:
    """Run `call`; errors that the user can mend become exit code 2, an interrupt 130, SIGTERM 143."""
    ended = Event()
    try:
        with terminated_as_interrupted(ended):
            call()
    except (KeyboardInterrupt, Exception) as error:
        if ended.is_set() or from_interrupt(error):  # a library that was being imported may make another error of it
            if speaks():
                typer.echo(INTERRUPTED, err=True)
            raise typer.Exit(128 + (signal.SIGTERM if ended.is_set() else signal.SIGINT)) from None
        text = what_to_mend(error)
        if text is None:
            raise  # a defect, with its traceback
        if rank() == 0:  # of several processes all meet the same
            typer.echo(f"error: {in_one_line(text)}", err=True)
        raise typer.Exit(2) from None


def from_interrupt(error: BaseException | None) -> bool:
    """Whether an error was raised while a KeyboardInterrupt was handled."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def what_to_mend(error: BaseException) -> str | None:
    """The message for an error that the user can fix; None for a bug."""
    if isinstance(error, UserError):
        return str(error)
    from rla.envs.observation import EnvironmentFailure  # costs each command a hundredth of a second

    if isinstance(error, EnvironmentFailure):  # outside of an episode: for the frozen probe, say
        return (
            f"the environment failed: {error}; call the command again, it goes on where it stopped. Where it fails "
            "again, `rla envs --check` plays the environment and says at what"
        )
    return system_refusal(error)


def in_one_line(text: str) -> str:
    """`text` without line ends and control characters, and cut, because an error may quote untrusted text."""
    line = "".join(
        letter if letter.isprintable() else " " if letter.isspace() else repr(letter)[1:-1] for letter in text
    )
    return line if len(line) <= LONGEST_ERROR else f"{line[:LONGEST_ERROR]} ..."


@contextmanager
def terminated_as_interrupted(ended: Event) -> Iterator[None]:
    """Inside, SIGTERM sets `ended` and does what Ctrl-C does: the scheduler cancels its episodes, finished groups
    stay, nothing is left running. A launcher ends its own processes.
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
    """The refusal of the system (a full disk, a read-only folder, a name too long) and the remedy; None for other
    errors. `rla.store.atomic` reports its own refusals. Libraries that write checkpoints raise other errors, and those
    of Rust libraries end with a number.
    """
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list) and error.args[0]:
        _, target, reason = error.args[0][0]
        return f"{target}: {reason}; {REMEDY}"
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (found := NUMBERED.search(str(error))):
        number = int(found[1] or found[2])
    renamed = isinstance(error, OSError) and number == errno.ENOENT and error.filename2 is not None  # as NFS answers
    if number is None or (number not in REFUSALS and not renamed):
        return None
    place = error.filename2 or error.filename if isinstance(error, OSError) else None
    where = f"{os.fsdecode(place)}: " if isinstance(place, str | bytes | os.PathLike) else ""
    return f"{where}the system refuses it ({os.strerror(number)}); {REMEDY}"


Option = tuple[str, Any, Any]  # name, annotation, default
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one parameter.")]

LOOKING = ("report", "judge-accuracy")  # stages that take the newest run unless one is named
NEWEST = "by default the newest below runs"  # of commands that look at a run

DIVIDED: list[Option] = [
    (
        "own_slice",
        Annotated[str | None, typer.Option("--slice", metavar="I/N", help="Only share I of N of the groups.")],
        None,
    ),
    (
        "own_workers",
        Annotated[int | None, typer.Option("--workers", min=1, help="N processes here, one slice each.")],
        None,
    ),
]

OWN_OPTIONS: dict[str, list[Option]] = {
    "evaluate": [
        (
            "own_from",
            Annotated[
                Path | None,
                typer.Option(
                    "--from", metavar="FILE", help="Judge the answers of this .jsonl or .parquet; play nothing."
                ),
            ],
            None,
        ),
    ],
    "make-tasks": [
        (
            "own_from",
            Annotated[
                Path | None,
                typer.Option(
                    "--from", help="Data: a folder that holds json_2.1.1, or what else the environment reads."
                ),
            ],
            None,
        ),
        ("own_split", Annotated[str | None, typer.Option("--split", help="Only this split.")], None),
        (
            "own_export",
            Annotated[Path | None, typer.Option("--export", help="Also write games that the stock engine loads.")],
            None,
        ),
        (
            "own_limit",
            Annotated[int | None, typer.Option("--limit", min=1, help="At most this many games.")],
            None,
        ),
        (
            "own_curate",
            Annotated[
                Path | None,
                typer.Option(
                    "--curate", metavar="FOLDER", help="Keep what the policy of these trajectories sometimes solves."
                ),
            ],
            None,
        ),
    ],
}


def own_options(spec: StageSpec) -> list[Option]:
    """Options of a stage beyond those of every stage; a stage of a package lists its own in its `StageSpec`."""
    brought = [(f"own_{name}", annotation, default) for name, annotation, default in spec.options]
    return [*(DIVIDED if spec.divided else ()), *OWN_OPTIONS.get(spec.name, ()), *brought]
