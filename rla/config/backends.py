"""Sections, engines and launchers that other packages bring to the parameters.

A package registers them in its pyproject.toml:

    [project.entry-points."rla.sections"]
    harvest = "rla_farm.params:HarvestConfig"

    [project.entry-points."rla.engines"]
    farm = "rla_farm.engines:FarmEngines"

    [project.entry-points."rla.launchers"]
    farm = "rla_farm.launching:FarmLauncher"

A section stands beside those of the core, in a params file (`harvest.size: 3`) and in every `Config`
(`config.harvest`), and cannot take the name of another. A stage whose outputs depend on it names it in
`StageSpec.sections`.

| key | dataclass | keys | protocol |
|---|---|---|---|
| `generator.backend: farm` | `FarmEngines` | `generator.own` | `rla.llm.factory.OwnEngine` |
| `launch.training: farm` | `FarmLauncher.Training` | `launch.own` | `rla.training.stage.Launcher` |
| `pool.backend: farm` | `FarmLauncher.Pool` | `pool.own` | `rla.envs.pool.hosting.OwnPool` |

No output depends on these keys. The methods of these dataclasses do the work. A launcher need not have both classes.

The fields of a dataclass are the keys, with defaults and bounds (`rla.config.bounds.ranged`). A ValueError or UserError
in `__post_init__` refuses fields that do not go together; its text continues the name of the section.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import field, fields, is_dataclass, make_dataclass, replace
from functools import cache
from keyword import kwlist
from typing import TYPE_CHECKING, Any

from rla.config.sections import Config
from rla.errors import UserError
from rla.plugins import loaded, package_of, registered

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SECTIONS, ENGINES, LAUNCHERS = "rla.sections", "rla.engines", "rla.launchers"
BUILTIN = ("transformers", "vllm", "server", "scripted")  # engines without parameters of their own
Build = Callable[[type, Any, str, str], Any]  # `rla.config.load.build`


def config_type(packages: Collection[str] | None = None) -> type[Config]:
    """`Config` with a field for each section that `packages` bring. None: all that are installed.

    Raises UserError for a section that cannot be imported, is not a dataclass, or has a name that is taken.
    """
    entries = registered(SECTIONS).items()
    chosen = {name: entry for name, entry in entries if packages is None or package_of(entry) in packages}
    found = {name: type(loaded(entry, instance=True)) for name, entry in chosen.items()}  # each key has a default
    taken = {one.name for one in fields(Config)} | {*kwlist}
    for name, shape in found.items():
        if name in taken or not (name.isidentifier() and is_dataclass(shape)):
            raise UserError(
                f"{SECTIONS}: {name} must be a dataclass, and its name an identifier that rla does not use; mend the "
                f"package {package_of(chosen[name])}"
            )
    return _with_sections(tuple(found.items())) if found else Config


@cache  # configs are equal only if they have the same class
def _with_sections(found: tuple[tuple[str, Any], ...]) -> type[Config]:
    def reduced(config: Config) -> tuple[Any, ...]:  # pickle looks up classes by name
        return _restored, (found, {one.name: getattr(config, one.name) for one in fields(config)})

    own = [(name, shape, field(default_factory=shape)) for name, shape in found]
    kept = {"__doc__": Config.__doc__, "__module__": Config.__module__, "__reduce__": reduced}
    return make_dataclass("Config", own, bases=(Config,), namespace=kept, frozen=True, slots=True, kw_only=True)


def _restored(found: tuple[tuple[str, Any], ...], values: Mapping[str, Any]) -> Config:
    return _with_sections(found)(**values)


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
        return build(shape, data or {}, where, f"{section}.")

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
