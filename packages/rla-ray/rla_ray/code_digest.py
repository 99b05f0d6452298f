"""A digest of the code of rla and its packages, to check that processes on different machines run the same."""

from __future__ import annotations

import platform
from functools import lru_cache
from hashlib import blake2b
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from rla import __version__
from rla.errors import UserError


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Digest of the version, and of the names and contents of all Python files of `rla`, `stages` and the packages that
    register entry points with rla. It does not depend on the folder of the installation.
    """
    found = entry_points()
    groups = (found.select(group=group) for group in found.groups if group.startswith("rla."))
    ours = {entry.module.partition(".")[0] for entries in groups for entry in entries}
    digest = blake2b(__version__.encode(), digest_size=16)
    for name in sorted(ours | {"rla", "stages"}):
        spec = find_spec(name)
        for root in map(Path, (spec.submodule_search_locations or ()) if spec is not None else ()):
            for file in sorted(root.rglob("*.py")):
                if "_data" not in file.parts:
                    digest.update(repr((name, file.relative_to(root).as_posix(), file.read_bytes())).encode())
    return digest.hexdigest()


def refuse_other_code(digest: str) -> None:
    """Raises UserError if the process that sent `digest` runs other code than this one."""
    if digest != code_digest():
        raise UserError(
            f"node {platform.node()} runs other code of rla (it is {__version__}) than the stage; install the same on "
            "all nodes, and restart Ray there"
        )
