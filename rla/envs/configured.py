"""Parameters with `env.own` in the shape that the chosen environment gives it: how commands read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.config import load
from rla.config.load import config_type, decided
from rla.config.schema import params_schema
from rla.config.sections import Config
from rla.envs.protocols import Adapts, Checks, Env, Labels, Probes
from rla.envs.registry import BUILTIN, GROUP, environment, params_of
from rla.errors import UserError
from rla.pictures.prompts import shows_images
from rla.plugins import package_of, registered


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
