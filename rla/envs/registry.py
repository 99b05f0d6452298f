"""Environments by name: the core's own, and those of the entry-point group `rla.envs` of any installed package.

A package that brings an environment says so in its pyproject.toml:

    [project.entry-points."rla.envs"]
    guess-number = "guess_number:GuessNumber"
"""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

from rla import __version__
from rla.envs import protocols
from rla.envs.protocols import Env
from rla.errors import UserError
from rla.plugins import package_of, registered

GROUP = "rla.envs"
BUILTIN = {"alfworld": "rla.envs.alfworld.environment:Alfworld"}  # a package cannot take these names


def installed_environments() -> dict[str, str]:
    """The name of every environment that is there, with the `module:class` that it is."""
    return dict(sorted(({name: entry.value for name, entry in registered(GROUP).items()} | BUILTIN).items()))


def environment(name: str | None) -> Env:
    """A new instance of the environment `name`. Raises UserError for an unknown name, and as `instance` does."""
    targets = BUILTIN if name in BUILTIN else installed_environments()
    if name is None or name not in targets:
        near = difflib.get_close_matches(name or "", targets, n=1)
        hint = (
            f"did you mean {near[0]}?"
            if near
            else f"installed: {', '.join(targets)}; install the package of another first"
        )
        raise UserError(f"env.name is {name!r}; {hint}")
    return instance(name, targets[name])


def instance(name: str, target: str) -> Env:
    """An instance of the class at `module:class`. Raises UserError where it cannot be imported or is no `Env`."""
    module, _, attribute = target.partition(":")
    try:
        found = getattr(import_module(module), attribute)()
    except Exception as error:  # a package may raise anything while it is imported
        raise UserError(
            f"env.name: {name} is {target}, which cannot be imported ({type(error).__name__}: {error}); mend its "
            "package"
        ) from error
    missing = [member for member in REQUIRED if not hasattr(found, member)]
    if missing:
        raise UserError(f"env.name: {name} ({target}) has no {', '.join(missing)}; see rla.envs.protocols.Env")
    result: Env = found
    return result


REQUIRED = ("name", "Params", "tasks", "make", "policy_prompt")


def params_of(name: str) -> type:
    """The dataclass of an environment's own parameters. Raises UserError as `environment` does."""
    return environment(name).Params


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
