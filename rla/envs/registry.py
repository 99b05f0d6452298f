"""Environments by name: the core's own, and those of the entry-point group `rla.envs` of any installed package.

A package that brings an environment says so in its pyproject.toml:

    [project.entry-points."rla.envs"]
    guess-number = "guess_number:GuessNumber"
"""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any

from rla import __version__
from rla.envs import protocols
from rla.envs.protocols import Env
from rla.errors import UserError
from rla.plugins import loaded, package_of, registered

GROUP = "rla.envs"
ALFWORLD = EntryPoint(name="alfworld", value="rla.envs.alfworld.environment:Alfworld", group=GROUP)
BUILTIN = {ALFWORLD.name: ALFWORLD}  # a package cannot take these names


def installed_environments() -> dict[str, EntryPoint]:
    """Every environment that is there, by its name."""
    return dict(sorted((registered(GROUP) | BUILTIN).items()))


def environment(name: str | None) -> Env:
    """A new instance of the environment `name`. Raises UserError for an unknown name, and as `instance` does."""
    known = BUILTIN if name in BUILTIN else installed_environments()
    if name is None or name not in known:
        near = difflib.get_close_matches(name or "", known, n=1)
        hint = (
            f"did you mean {near[0]}?"
            if near
            else f"installed: {', '.join(known)}; install the package of another first"
        )
        raise UserError(f"env.name is {name!r}; {hint}")
    return instance(known[name])


def instance(entry: EntryPoint) -> Env:
    """An instance of the class that an entry names. Raises UserError as `loaded` does, and if it is not an `Env`."""
    result: Env = loaded(entry, instance=True)
    missing = [member for member in REQUIRED if not hasattr(result, member)]
    if missing:
        said = f"{GROUP}: {entry.name} is {entry.value}, which has no {', '.join(missing)}"
        raise UserError(f"{said}; see rla.envs.protocols.Env")
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
    return [described(entry) for entry in installed_environments().values()]


def described(entry: EntryPoint) -> Installed:
    package, version = "rla", __version__
    if entry.name not in BUILTIN:
        package, version = package_of(entry), entry.dist.version if entry.dist is not None else ""
    known: dict[str, Any] = {}
    try:
        env = instance(entry)
        known["abilities"] = tuple(ability.__name__ for ability in ABILITIES if isinstance(env, ability))
        known["about"] = (inspect.getdoc(type(env)) or "").partition("\n")[0]
    except UserError as error:
        known["broken"] = str(error)
    return Installed(name=entry.name, target=entry.value, package=package, version=version, **known)
