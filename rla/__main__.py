"""Entry point of `rla`: a running pre-fork server gets the call; without one the command line starts here."""

from __future__ import annotations

import os
import sys

from rla.processes.ranks import end_with_parent, launched

# Threads that wait for each other spin. Beside another busy process that can cost ten times the work itself; a short
# spin loses little on a quiet machine. OpenMP reads this when torch is imported.
SPIN = ("GOMP_SPINCOUNT", "5000")

OWN_PROCESS = (["prefork"], ["serve"], ["run"])  # what starts and ends other processes


def main() -> None:
    """Exit with the status of the command; nothing heavy is imported before a server has been asked."""
    os.environ.setdefault(*SPIN)
    if launched():
        end_with_parent()  # a launcher gives its processes a session of their own, which no signal to a group reaches
    arguments = sys.argv[1:]
    server = os.environ.get("RLA_PREFORK")
    if server and arguments[:1] not in OWN_PROCESS and "WORLD_SIZE" not in os.environ:
        from rla.processes.prefork.client import forward_call

        status = forward_call(server, arguments)
        if status is not None:
            sys.exit(status)
    try:
        from rla.cli.app import run
    except KeyboardInterrupt:  # while the command line is imported
        print("interrupted: nothing was begun", file=sys.stderr)
        sys.exit(130)
    if not launched():
        sys.exit(run(arguments))
    import traceback

    from rla.processes.leaving import leave

    status = 1
    try:
        status = run(arguments)
    except BaseException:
        traceback.print_exc()
    leave(status)


if __name__ == "__main__":
    main()
