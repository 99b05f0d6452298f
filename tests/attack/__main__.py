"""`make attack`: what can go wrong, tried until every trial was made once or the time is over.

`python -m tests.attack --minutes 10` goes on where the last call of the same code and seed stopped; `--only` repeats
one trial. Exit code 1 where a trial failed, and failed again when it was tried once more alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

from tests.attack.preparing import TOP, code_digest, started

MAKES = ("rla", "stages", "schemas", "packages", "tests/attack/small_run.py", "tests/attack/file_operations.c")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="of this call, its preparations included")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other trials")
    parser.add_argument("--inputs", type=int, default=10_000, help="hostile inputs in all areas together")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="trials at once")
    parser.add_argument("--area", action="append", help="only this area; may be repeated")
    parser.add_argument("--case", action="append", help="only kills and the like of this call; may be repeated")
    parser.add_argument("--most", type=int, help="at most so many trials of each area")
    parser.add_argument("--only", help="repeat one trial, area/trial as the table names it, and print its reason")
    parser.add_argument("--again", action="store_true", help="try what failed once more")
    parser.add_argument("--folder", type=Path, default=TOP / "build" / "attack", help="where progress is kept")
    return parser.parse_args()


def main() -> int:
    until = time.monotonic() + 60 * (asked := arguments()).minutes
    folder = asked.folder.absolute() / code_digest(*MAKES)
    folder.mkdir(parents=True, exist_ok=True)
    for other in folder.parent.iterdir():
        if other.is_dir() and other != folder:
            shutil.rmtree(other, ignore_errors=True)
    started(folder)

    from rich.console import Console

    from tests.attack.attacking import attack

    return attack(asked, folder, until=until, console=Console(width=None if sys.stdout.isatty() else 160))


if __name__ == "__main__":
    sys.exit(main())
