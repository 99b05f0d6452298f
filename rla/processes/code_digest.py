"""Whether processes on different machines run the same code of rla, wherever it is installed."""

from __future__ import annotations

import platform
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from rla import __version__
from rla.errors import UserError


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Of the version, and of the names and contents of all Python files of `rla` and `stages`."""
    package = Path(__file__).resolve().parents[1]
    digest = blake2b(__version__.encode(), digest_size=16)
    for root in (package, package.parent / "stages"):
        for file in sorted(root.rglob("*.py")):
            if "_data" not in file.parts:
                digest.update(repr((file.relative_to(package.parent).as_posix(), file.read_bytes())).encode())
    return digest.hexdigest()


def refuse_other_code(digest: str) -> None:
    """Raises UserError where the process that has sent its digest runs other code than this one."""
    if digest != code_digest():
        raise UserError(
            f"node {platform.node()} runs other code of rla (it is {__version__}) than the stage; install the same on "
            "all nodes, and start Ray there anew"
        )
