"""A call of `rla` that is killed once so many files are copied: `dying_transfer.py put_file 9 push r s3://bucket/r`.

A program of `test_object_store.py`.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from fsspec.implementations.dirfs import DirFileSystem

from rla.cli.app import run


def main(name: str, after: str, *words: str) -> int:
    transfer, left = getattr(DirFileSystem, name), int(after)

    def counted(*given: Any, **options: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        transfer(*given, **options)

    setattr(DirFileSystem, name, counted)
    return run([*words])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
