"""Files that travel with the package: schemas and pipelines, from a checkout or from an installed wheel.

A wheel carries them below `rla/_data`; in a checkout they lie at its top.
"""

from __future__ import annotations

from pathlib import Path

from rla.errors import UserError

PACKAGE = Path(__file__).resolve().parents[1]


def resource(name: str) -> Path:
    """The file or folder `name`, such as `schemas` or `pipelines/small.yaml`.

    Raises UserError when the installation lacks it.
    """
    for top in (PACKAGE / "_data", PACKAGE.parent):
        path = top / name
        if path.exists():
            return path
    raise UserError(f"{name}: not part of this installation of rla; reinstall it")
