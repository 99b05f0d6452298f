"""Engines and launchers of other packages, by the name that a key of the parameters has.

A package registers them in its pyproject.toml:

    [project.entry-points."rla.engines"]
    farm = "rla_farm.engines:FarmEngines"

    [project.entry-points."rla.launchers"]
    farm = "rla_farm.launching:FarmLauncher"

| key | dataclass | keys | protocol |
|---|---|---|---|
| `generator.backend: farm` | `FarmEngines` | `generator.own` | `rla.llm.factory.OwnEngine` |
| `launch.training: farm` | `FarmLauncher.Training` | `launch.own` | `rla.training.stage.OwnTraining` |
| `pool.backend: farm` | `FarmLauncher.Pool` | `pool.own` | `rla.envs.pool.hosting.OwnPool` |

The fields of a dataclass are the keys, with defaults and bounds (`rla.config.bounds.ranged`); its methods do the work.
A ValueError in `__post_init__` refuses fields that do not go together. No output depends on these keys. A launcher need
not have both classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any

from rla.config.sections import Config
from rla.errors import UserError
from rla.plugins import loaded, registered

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENGINES, LAUNCHERS = "rla.engines", "rla.launchers"
BUILTIN = ("transformers", "vllm", "server", "scripted")  # engines without parameters of their own
Build = Callable[[type, Any, str, str], Any]  # `rla.config.load.build`


def with_own_parameters(config: Config, build: Build, *, where: str) -> Config:
    """`config` with `own` of generator, launch and pool as the package that each of them names has it.

    Where the core itself does the work `own` is None. Raises UserError, beginning with `where`, for a name that is not
    installed or cannot be imported, and for keys that its package does not know.
    """

    def own(key: str, entry: EntryPoint, data: Any, *, role: str = "") -> Any:
        section = f"{key.partition('.')[0]}.own"
        found = loaded(entry)
        shape = getattr(found, role, None) if role else found
        if not (isinstance(shape, type) and is_dataclass(shape)):
            raise UserError(
                f"{where}: {key}: {entry.name} is {entry.value}, which is not a dataclass; mend its package"
            )
        try:
            return build(shape, data or {}, where, f"{section}.")
        except ValueError as error:
            raise UserError(f"{where}: {section}.{error}") from None

    generator, launch, pool = config.generator, config.launch, config.pool
    engine = hosts = training = None
    if generator.backend not in BUILTIN:
        entry = backend_entry("generator.backend", generator.backend, ENGINES, BUILTIN, where)
        engine = own("generator.backend", entry, generator.own)
    if pool.backend != "local":
        entry = backend_entry("pool.backend", pool.backend, LAUNCHERS, ("local",), where)
        hosts = own("pool.backend", entry, pool.own, role="Pool")
    if launch.training is not None and (launcher := registered(LAUNCHERS).get(launch.training)):  # else a file's name
        training = own("launch.training", launcher, launch.own, role="Training")
    return replace(
        config,
        generator=replace(generator, own=engine),
        launch=replace(launch, own=training),
        pool=replace(pool, own=hosts),
    )


def backend_entry(key: str, name: str, group: str, builtin: tuple[str, ...], where: str) -> EntryPoint:
    """The entry that an installed package registers as `name`. Raises UserError if none does."""
    installed = registered(group)
    if name not in installed:
        raise UserError(
            f"{where}: {key} is {name!r}; installed: {', '.join([*builtin, *installed])}; choose one of these, or "
            f"install the package that brings {name}"
        )
    return installed[name]
