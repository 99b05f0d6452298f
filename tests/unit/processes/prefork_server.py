"""A pre-fork server without imports whose commands do what tests need.

Commands: `exit N`; `say WORD` (stdout, stderr, working directory, a variable); `read` (stdin); `raise`;
`sleep FILE` (writes its process id and a grandchild's to FILE, then waits); `interrupt FILE` (5 on SIGINT).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import rla.cli.app
import rla.processes.prefork.server as server


def commands(arguments: Sequence[str]) -> int:
    match list(arguments):
        case ["exit", code]:
            return int(code)
        case ["say", word]:
            print(word, os.getcwd(), os.environ["RLA_TEST_WORD"])
            print(f"{word} on stderr", file=sys.stderr)
        case ["read"]:
            print(sys.stdin.read().upper())
        case ["sleep", name]:
            grandchild = subprocess.Popen(["sleep", "60"])
            Path(name).write_text(f"{os.getpid()} {grandchild.pid}")
            time.sleep(60)
        case ["interrupt", name]:
            Path(name).write_text(str(os.getpid()))
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                return 5
        case ["raise"]:
            raise RuntimeError("a defect")
    return 0


if __name__ == "__main__":
    rla.cli.app.run = commands
    server.preload_commands = lambda: None
    sys.exit(server.main(sys.argv[1:]))
