"""Entry point of `rla`."""

from __future__ import annotations

import os
import sys

from rla.processes import end_with_parent, launched

# Threads that wait for each other spin. If another process is busy, that can cost ten times the work itself; a short
# spin costs little on a quiet machine. OpenMP reads this when torch is imported.
SPIN = ("GOMP_SPINCOUNT", "5000")


def main() -> None:
    """Exit with the status of the command."""
    os.environ.setdefault(*SPIN)
    if launched():
        end_with_parent()  # a launcher's processes have a session of their own, which signals to a group do not reach
    arguments = sys.argv[1:]
    try:
        from rla.cli.app import run
    except KeyboardInterrupt:  # while the command line is imported
        print("interrupted: nothing was begun", file=sys.stderr)
        sys.exit(130)
    if not launched():
        sys.exit(run(arguments))
    import traceback

    from rla.processes import leave

    status = 1
    try:
        status = run(arguments)
    except BaseException:
        traceback.print_exc()
    leave(status)


if __name__ == "__main__":
    main()
