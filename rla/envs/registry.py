"""Environments by name, and the parameters of a run with those of its environment.

The core brings `alfworld`. An installed package adds environments, classes as `rla.envs.protocols.Env` describes them,
through the entry-point group `rla.envs` (`rla.plugins`).
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from rla import __version__
from rla.config import load
from rla.config.load import config_type, decided
from rla.config.schema import params_schema
from rla.config.sections import Config
from rla.envs.protocols import ABILITIES, Adapts, Checks, Env
from rla.errors import UserError
from rla.pictures.prompts import shows_images
from rla.plugins import loaded, package_of, registered

GROUP = "rla.envs"
ALFWORLD = EntryPoint(name="alfworld", value="rla.envs.alfworld.environment:Alfworld", group=GROUP)
BUILTIN = {ALFWORLD.name: ALFWORLD}  # a package cannot take these names
REQUIRED = ("name", "Params", "tasks", "make", "policy_prompt")


def installed_environments() -> dict[str, EntryPoint]:
    return dict(sorted((registered(GROUP) | BUILTIN).items()))


def environment(name: str | None) -> Env:
    """A new instance of the environment `name`.

    Raises UserError if the name is unknown, its package cannot be imported, or its class lacks a member of `Env`.
    """
    known = BUILTIN if name in BUILTIN else installed_environments()
    if name is None or name not in known:
        near = difflib.get_close_matches(name or "", known, n=1)
        hint = f"installed: {', '.join(known)}; install the package of another first"
        raise UserError(f"env.name is {name!r}; {f'did you mean {near[0]}?' if near else hint}")
    return _instance(known[name])


def _instance(entry: EntryPoint) -> Env:
    result: Env = loaded(entry, instance=True)
    missing = [member for member in REQUIRED if not hasattr(result, member)]
    if missing:
        said = f"{GROUP}: {entry.name} is {entry.value}, which has no {', '.join(missing)}"
        raise UserError(f"{said}; see rla.envs.protocols.Env")
    return result


def params_of(name: str) -> type:
    """The dataclass of an environment's own parameters. Raises UserError as `environment` does."""
    return environment(name).Params


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """An installed environment. `abilities`: names of the optional protocols it implements. `about`: the first line of
    its docstring. `broken`: why it cannot be used, or empty.
    """

    name: str
    target: str
    package: str
    version: str
    abilities: tuple[str, ...] = ()
    about: str = ""
    broken: str = ""


def installed_list() -> list[Installed]:
    """All environments, sorted by name."""
    found = []
    for entry in installed_environments().values():
        package, version = "rla", __version__
        if entry.name not in BUILTIN:
            package, version = package_of(entry), entry.dist.version if entry.dist is not None else ""
        known: dict[str, Any] = {}
        try:
            env = _instance(entry)
            known["abilities"] = tuple(ability.__name__ for ability in ABILITIES if isinstance(env, ability))
            known["about"] = (inspect.getdoc(type(env)) or "").partition("\n")[0]
        except UserError as error:
            known["broken"] = str(error)
        found.append(Installed(name=entry.name, target=entry.value, package=package, version=version, **known))
    return found


def load_config(path: str | Path | None, overrides: Sequence[str] = ()) -> Config:
    """The config in the file `path` (None: the defaults) with `key=value` overrides applied.

    Raises UserError naming the file and the key for unknown keys, wrong types, impossible combinations, and any
    combination that the environment refuses.
    """
    where = str(path) if path else load.DEFAULTS
    with load.blaming(overrides, where=where):
        return _checked(load.read_config(path, overrides, params_of=params_of), where=where)


def from_mapping(data: Mapping[str, Any], *, where: str) -> Config:
    """The config of nested params; `where` names their origin in errors. Raises UserError as `load_config` does."""
    return _checked(load.config_of(data, where=where, params_of=params_of), where=where)


def _checked(config: Config, *, where: str) -> Config:
    chosen = environment(config.env.name)
    try:
        _refuse_impossible(chosen, config)
        if isinstance(chosen, Checks):
            chosen.check(config)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    return config


def _refuse_impossible(chosen: Env, config: Config) -> None:
    """Raises UserError for parameters that ask for something that the environment does not have."""
    known = chosen.edit_fields if isinstance(chosen, Adapts) else frozenset()
    if unknown := [name for name in config.adaptation.edits if name not in known]:
        names = ", ".join(sorted(known)) or "no edits at all"
        raise UserError(f"adaptation.edits: {unknown[0]!r} is unknown; {config.env.name} has {names}")
    pictures = shows_images(chosen, config)
    # vLLM applies adapters to the text model only, so it would sample without the adapter of the vision tower.
    if config.generator.lora == "adapter" and pictures:
        for name, train in (("train_policy", config.train_policy), ("train_rm", config.train_rm)):
            if train.lora.rank and train.vision == "trained":
                raise UserError(
                    f"generator.lora: adapter leaves out what {name} trains in the vision tower; set "
                    f"{name}.vision to frozen, or generator.lora to merged"
                )
    if config.train_rm.replay and pictures:  # train-rm only opens the pictures of its own iteration
        raise UserError("train_rm.replay: pictures of earlier iterations do not train again; leave the key out")


def schema_of_params(names: Collection[str] = BUILTIN, *, alone: bool = True) -> dict[str, Any]:
    """The JSON Schema of a params file, with the own parameters of these environments and the sections that their
    packages define. Without `alone`: the sections of all packages.
    """
    packages = {package_of(entry) for name, entry in registered(GROUP).items() if name in names} if alone else None
    return params_schema(config_type(packages), {name: params_of(name) for name in names})


def default_config(recorded: Mapping[str, Any]) -> Config:
    """The default of every parameter, including those of the environment that `recorded` names if it is installed."""
    defaults = decided(config_type()())
    env = recorded.get("env")
    name = env.get("name") if isinstance(env, Mapping) else None
    if not isinstance(name, str) or not name:
        return defaults
    try:
        own = params_of(name)()
    except UserError:  # the environment is not installed here
        own = {}
    return replace(defaults, env=replace(defaults.env, own=own))
