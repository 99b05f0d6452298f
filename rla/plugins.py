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
import platform
import re
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, PackageNotFoundError, distribution, entry_points, version
from pathlib import Path
from typing import Any

from rla import __version__
from rla.errors import UserError


def registered(group: str) -> dict[str, EntryPoint]:
    """The entries of a group by name. If two packages register the same name, the first on `sys.path` counts."""
    found = reversed([*_entry_points(tuple(sys.path)).get(group, ())])  # the first of a name comes last
    return {entry.name: entry for entry in sorted(found, key=lambda entry: entry.name)}


@cache  # reading the records of 300 packages takes 15 ms, and every config asks for five groups
def _entry_points(path: tuple[str, ...]) -> dict[str, EntryPoints]:
    """The entries of all packages on `path`, which is `sys.path`, by group."""
    found = entry_points()
    return {group: found.select(group=group) for group in found.groups if group.startswith("rla.")}


@cache  # every stage writes them down
def package_versions() -> dict[str, str]:
    """Versions of rla, of packages that register something with it, and of all that these require, extras included.
    Nothing is imported: the versions are in the installer's records.
    """
    groups = _entry_points(tuple(sys.path)).values()
    dists = {entry.dist for entries in groups for entry in entries if entry.dist is not None}
    with suppress(PackageNotFoundError):
        dists.add(distribution("rla"))
    needed = [text for dist in dists for text in dist.requires or () if not re.search("extra == .dev.", text)]
    found = {"rla": __version__, "python": platform.python_version()}
    names = {one.name for one in dists} | {re.split(r"[^\w.-]", text)[0] for text in needed}
    for name in sorted(names - found.keys()):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


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
