"""Environments by name. Third parties add theirs through the entry-point group `rla.envs`."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from rla.envs.protocols import Setting
from rla.errors import UserError

BUILTIN = {
    "alfworld": "rla.envs.alfworld.environment:AlfworldSetting",
    "coding": "rla.envs.coding.environment:CodingSetting",
}


def setting(name: str) -> Setting:
    """An instance of the setting `name`; UserError lists the known ones."""
    targets = dict(BUILTIN) | {entry.name: entry.value for entry in entry_points(group="rla.envs")}
    if name not in targets:
        raise UserError(f"env.name is {name!r}; known environments: {', '.join(sorted(targets))}")
    module, _, attribute = targets[name].partition(":")
    instance: Setting = getattr(import_module(module), attribute)()
    return instance
