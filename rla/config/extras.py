"""Packages that an option needs beyond the core: looked for before anything is loaded."""

from __future__ import annotations

import importlib.util

from rla.errors import UserError


def need_package(package: str, *, install: str, why: str) -> None:
    """Raises UserError unless `package` can be imported. `install`: what brings it, such as `rla[lora]`."""
    if importlib.util.find_spec(package) is None:
        raise UserError(f"{why}, but {package} is not installed: pip install '{install}'")
