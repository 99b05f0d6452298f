"""Which environments are installed, what each can do, and where it comes from."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

from rla import __version__
from rla.envs import protocols
from rla.envs.registry import BUILTIN, GROUP, installed_environments, instance
from rla.errors import UserError
from rla.plugins import package_of, registered

ABILITIES: tuple[type, ...] = (
    protocols.Judged,
    protocols.Probes,
    protocols.Shares,
    protocols.Spreads,
    protocols.Pooled,
    protocols.Imports,
    protocols.Exports,
    protocols.Vocabulary,
    protocols.Demonstrates,
    protocols.Teaches,
    protocols.Labels,
    protocols.LabelsSeen,
    protocols.HasExpert,
    protocols.Adapts,
    protocols.AsksModel,
    protocols.Proves,
    protocols.Checks,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An environment that is installed. `abilities`: names of the optional protocols that it has. `about`: the first
    line of its docstring. `broken`: why it cannot be used; empty where it can.
    """

    name: str
    target: str
    package: str
    version: str
    abilities: tuple[str, ...] = ()
    about: str = ""
    broken: str = ""


def installed_list() -> list[Installed]:
    """All of them, by name."""
    entries = {name: entry for name, entry in registered(GROUP).items() if name not in BUILTIN}
    return [described(name, target, entries.get(name)) for name, target in installed_environments().items()]


def described(name: str, target: str, entry: EntryPoint | None) -> Installed:
    """One of them; `entry` where a package of its own brings it."""
    package, version = "rla", __version__
    if entry is not None:
        package, version = package_of(entry), entry.dist.version if entry.dist is not None else ""
    known: dict[str, Any] = {}
    try:
        env = instance(name, target)
        known["abilities"] = tuple(ability.__name__ for ability in ABILITIES if isinstance(env, ability))
        known["about"] = (inspect.getdoc(type(env)) or "").partition("\n")[0]
    except UserError as error:
        known["broken"] = str(error)
    return Installed(name=name, target=target, package=package, version=version, **known)
