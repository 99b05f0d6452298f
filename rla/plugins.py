"""Entry points of installed packages: how a package brings environments, commands, parameters and more.

A package names each in its pyproject.toml. Of an environment `dice`, the class `Dice` of the module `dice`:

    [project.entry-points."rla.envs"]
    dice = "dice:Dice"

The module that reads a group documents the objects in it: `rla.envs` in `rla.envs.registry`, `rla.commands` in
`rla.cli.app`, `rla.pipelines` in `rla.pipeline.plan`, `rla.options` in `rla.pipeline`, `rla.schemas` in
`rla.store.schema`, `rla.tables` in `rla.metrics.custom`, and the groups of parameters in `rla.config.load`.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.errors import UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


def registered(group: str) -> dict[str, EntryPoint]:
    """The entries of a group by name. If two packages register the same name, the first on `sys.path` counts."""
    found: dict[str, EntryPoint] = {}
    for entry in _entry_points(group, tuple(sys.path)):
        found.setdefault(entry.name, entry)
    return dict(sorted(found.items()))


@cache  # reading the metadata of 300 packages takes 20 ms, and every config asks for five groups
def _entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Of the packages on `path`, which is `sys.path`."""
    from importlib.metadata import entry_points  # slow: it imports the library for e-mail

    return entry_points(group=group)


def package_of(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "(unknown)"


def loaded(entry: EntryPoint, *, instance: bool = False) -> Any:
    """The object that an entry names, or an `instance` of it. Raises UserError if it cannot be imported or made."""
    failed = "imported"
    try:
        found = entry.load()
        failed = "made"
        return found() if instance else found
    except Exception as error:  # a package may raise anything
        raise UserError(
            f"{entry.group}: {entry.name} is {entry.value}, which cannot be {failed} "
            f"({type(error).__name__}: {error}); mend the package {package_of(entry)}, or uninstall it"
        ) from error


def loaded_path(entry: EntryPoint, *, folder: bool = False) -> Path:
    """The `Path` of a file, or of a `folder`, that an entry names. Raises UserError if it does not exist."""
    found = loaded(entry)
    if isinstance(found, Path) and (found.is_dir() if folder else found.is_file()):
        return found
    said = f"{entry.group}: {entry.name} is {entry.value}, which is not the Path of a {'folder' if folder else 'file'}"
    raise UserError(f"{said}; mend the package {package_of(entry)}")


def need_package(package: str, *, install: str, why: str) -> None:
    """Raise UserError unless `package` can be imported. `install`: a package or extra, such as `rla[lora]`."""
    if importlib.util.find_spec(package) is None:
        raise UserError(f"{why}, but {package} is not installed; {from_checkout(install)}")


def from_checkout(install: str) -> str:
    """The remedy for a missing package or extra. They are not published on a package index."""
    return f"install {install} from a checkout (docs/guide/install.md)"
