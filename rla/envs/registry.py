"""Environments by name: the core's own, and those of the entry-point group `rla.envs` of any installed package.

A package that brings an environment says so in its pyproject.toml:

    [project.entry-points."rla.envs"]
    guess-number = "guess_number:GuessNumber"
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
from rla.envs import protocols
from rla.envs.pictures import shows_images
from rla.envs.protocols import Adapts, Checks, Env, Labels, Probes
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


def load_config(path: str | Path | None, overrides: Sequence[str] = ()) -> Config:
    """The config of `path` (none: all defaults) with `key=value` overrides applied.

    Raises UserError naming the file and the key for unknown keys, wrong types, impossible combinations, and whatever
    the environment itself refuses.
    """
    where = str(path) if path else load.DEFAULTS

    def read(overrides: Sequence[str]) -> Config:
        return checked(load.read_config(path, overrides, params_of=params_of), where=where)

    return load.blaming(read, overrides, where=where)


def from_mapping(data: Mapping[str, Any], *, where: str) -> Config:
    """The config of nested params; `where` names their origin in errors, which are those of `load_config`."""
    return checked(load.config_of(data, where=where, params_of=params_of), where=where)


def checked(config: Config, *, where: str) -> Config:
    """`config`, which the environment has found possible."""
    chosen = environment(config.env.name)
    refuse_unknown_edits(chosen, config, where)
    refuse_adapters_of_towers(chosen, config, where)
    refuse_lessons_without_labels(chosen, config, where)
    refuse_replay_of_pictures(chosen, config, where)
    if isinstance(chosen, Checks):
        try:
            chosen.check(config)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
    return config


def refuse_unknown_edits(chosen: Env, config: Config, where: str) -> None:
    """UserError where `adaptation.edits` names what no edit of the environment has."""
    known = chosen.edit_fields if isinstance(chosen, Adapts) else frozenset()
    if unknown := [name for name in config.adaptation.edits if name not in known]:
        names = ", ".join(sorted(known)) or "no edits at all"
        raise UserError(f"{where}: adaptation.edits: {unknown[0]!r} is unknown; {config.env.name} has {names}")


def refuse_lessons_without_labels(chosen: Env, config: Config, where: str) -> None:
    """UserError where `credit.reward_model_truth` is set and the environment gives no labels of steps, or has a rule of
    its own for rewards.
    """
    if not config.credit.reward_model_truth:
        return
    if isinstance(chosen, Probes):
        raise UserError(
            f"{where}: credit.reward_model_truth: {config.env.name} has rewards of its own; leave the key out"
        )
    if not isinstance(chosen, Labels):
        raise UserError(
            f"{where}: credit.reward_model_truth: {config.env.name} has no labels of steps; leave the key out"
        )


def refuse_replay_of_pictures(chosen: Env, config: Config, where: str) -> None:
    """UserError where judgements of earlier pictures would train again: train-rm opens those of its own iteration."""
    if config.train_rm.replay and shows_images(chosen, config):
        raise UserError(
            f"{where}: train_rm.replay: pictures of earlier iterations do not train again; leave the key out"
        )


def refuse_adapters_of_towers(chosen: Env, config: Config, where: str) -> None:
    """UserError where engines would sample without the adapter that a vision tower trains: vLLM takes those of the
    text model alone.
    """
    if config.generator.lora != "adapter" or not shows_images(chosen, config):
        return
    for name, train in (("train_policy", config.train_policy), ("train_rm", config.train_rm)):
        if train.lora.rank and train.vision == "trained":
            raise UserError(
                f"{where}: generator.lora: adapter leaves out what {name} trains in the vision tower; set "
                f"{name}.vision to frozen, or generator.lora to merged"
            )


def schema_of_params(names: Collection[str] = BUILTIN, *, alone: bool = True) -> dict[str, Any]:
    """The JSON Schema of a params file, with the own parameters of these environments, and the sections that their
    packages bring. Not `alone`: the sections of all packages.
    """
    packages = {package_of(entry) for name, entry in registered(GROUP).items() if name in names} if alone else None
    return params_schema(config_type(packages), {name: params_of(name) for name in names})


def default_config(recorded: Mapping[str, Any]) -> Config:
    """The default of every parameter, with those of the environment's own where it is installed."""
    defaults = decided(config_type()())
    env = recorded.get("env")
    name = env.get("name") if isinstance(env, Mapping) else None
    if not isinstance(name, str) or not name:
        return defaults
    try:
        own = params_of(name)()
    except UserError:  # of an environment that is not installed here
        own = {}
    return replace(defaults, env=replace(defaults.env, own=own))
