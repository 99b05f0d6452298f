"""Run an ablation: the starts, then every arm and seed as the loop of its folder, a few at a time.

Finished work is kept: the same call continues after a kill or a failed arm, or with more iterations, arms or seeds.
Seeds are the outer loop, so that an ablation that is stopped early has complete comparisons.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rla.errors import UserError
from rla.processes import WATCH
from rla_study.ablation.design import Design, chosen_arms
from rla_study.ablation.folders import make_arm, make_start
from rla_study.ablation.starts import needed_starts

LOG = "repro.log"
COMMAND = (sys.executable, "-P", "-c", "from rla.pipeline.run import main; main()")
LOCK = ".lock"  # in the root, while a call makes the starts and folders of arms

Say = Callable[[str], None]


def run_ablation(
    design: Design, root: Path, *, jobs: int, only: Sequence[str] = (), seeds: Sequence[int] = (), say: Say
) -> None:
    """Run everything that is not done yet. Raises UserError for unknown arms and seeds, or if an arm failed."""
    arms = chosen_arms(design, only)
    if set(seeds) - set(design.seeds):
        known = ", ".join(map(str, design.seeds))
        raise UserError(f"--seed {' '.join(map(str, seeds))}: the design has the seeds {known}; add others to it")
    with (
        _lifeline() as (stdin, cut),
        ThreadPoolExecutor(max_workers=jobs) as pool,
        cut,  # ends the arms before the pool waits for them, which may take hours
    ):

        def attempt(folder: Path) -> str:
            """Run one arm. Returns the error, or an empty string, so that a failed arm does not end the others."""
            try:
                _turn_loop_of(folder, say, stdin=stdin)
            except UserError as error:
                return str(error)
            return ""

        with alone(root, say):
            for start in needed_starts(design, arms, seeds or design.seeds):
                _turn_loop_of(make_start(root, start), say, stdin=stdin)
            folders = [make_arm(root, design, arm, seed) for seed in seeds or design.seeds for arm in arms]
        failed = [error for error in pool.map(attempt, folders) if error]
    if failed:
        raise UserError("; ".join(failed))


@contextmanager
def alone(root: Path, say: Say) -> Iterator[None]:
    """Hold a lock, so that one call at a time makes starts and folders of arms below `root`. Waits for the lock."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / LOCK).open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{root}: another call is making the starts of the arms; this one waits for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            pass
        yield


@contextmanager
def _lifeline() -> Iterator[tuple[int, ExitStack]]:
    """Yields (stdin, cut). Processes with that standard input end when `cut` closes, or with this process, however it
    dies. `stdin` stays valid until this block ends: a process that starts after the cut ends at once.
    """
    reading, writing = os.pipe()
    cut = ExitStack()
    cut.callback(os.close, writing)
    try:
        yield reading, cut
    finally:
        cut.close()
        os.close(reading)


def _turn_loop_of(folder: Path, say: Say, *, stdin: int) -> None:
    """Run the loop of `folder` and append its output to its log. `stdin`: from `_lifeline`. Raises UserError with the
    log's last lines if the loop fails.
    """
    started = time.monotonic()
    log = folder / LOG
    environment = os.environ | {WATCH: "1"}
    with log.open("ab") as out:
        status = subprocess.run(
            COMMAND,
            cwd=folder,
            env=environment,
            stdin=stdin,
            stdout=out,
            stderr=out,
            start_new_session=True,
            check=False,
        ).returncode
    if status:
        tail = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
        raise UserError(f"{folder}: its loop failed; {log} ends with: {tail}")
    say(f"{folder}: whole, {time.monotonic() - started:.0f} s in this call")
