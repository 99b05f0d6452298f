"""Environments by name: the core's own, and those of the entry-point group `rla.envs` of any installed package.

A package that brings an environment says so in its pyproject.toml:

    [project.entry-points."rla.envs"]
    guess-number = "guess_number:GuessNumber"
"""

from __future__ import annotations

import difflib
from importlib import import_module

from rla.envs.protocols import Env
from rla.errors import UserError
from rla.plugins import registered

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
