"""Entry point of `rla`: hands the call to a running pre-fork server where there is one, else starts the command line."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Exit with the status of the command; nothing heavy is imported before a server has been asked."""
    arguments = sys.argv[1:]
    server = os.environ.get("RLA_PREFORK")
    if server and arguments[:1] != ["prefork"]:
        from rla.prefork.client import forward

        status = forward(server, arguments)
        if status is not None:
            sys.exit(status)
    from rla.cli import run

    sys.exit(run(arguments))


if __name__ == "__main__":
    main()
