"""Reading `params.yaml` into a `Config`: unknown keys and impossible combinations are refused before anything runs.

Packages add parameters of their own. They register them in their pyproject.toml:

    [project.entry-points."rla.sections"]
    harvest = "rla_farm.params:HarvestConfig"

    [project.entry-points."rla.engines"]
    farm = "rla_farm.engines:FarmEngines"

    [project.entry-points."rla.launchers"]
    farm = "rla_farm.launching:FarmLauncher"

A section is used like those of the core, in a params file (`harvest.size: 3`) and in every `Config`
(`config.harvest`), and cannot take the name of another. A stage whose outputs depend on it names it in
`StageSpec.sections`.

| key | dataclass | keys | protocol |
|---|---|---|---|
| `generator.backend: farm` | `FarmEngines` | `generator.own` | `rla.llm.factory.OwnEngine` |
| `launch.training: farm` | `FarmLauncher.Training` | `launch.own` | `rla.training.stage.Launcher` |
| `pool.backend: farm` | `FarmLauncher.Pool` | `pool.own` | `rla.envs.pool.hosting.PoolBackend` |

No output depends on these keys. The methods of these dataclasses do the work. A launcher need not have both classes.

The fields of a dataclass are the keys, with defaults and bounds (`rla.config.schema.ranged`). A ValueError or UserError
in `__post_init__` refuses fields that do not go together; its text continues the name of the section.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, field, fields, is_dataclass, make_dataclass, replace
from enum import Enum
from functools import cache
from keyword import kwlist
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from rla.config.checks import check_config
from rla.config.schema import flaw_of
from rla.config.sections import Config
from rla.config.training import protected, warmed
from rla.errors import UserError
from rla.plugins import loaded, package_of, registered

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


ParamsOf = Callable[[str], type]  # the dataclass of an environment's own parameters, by `env.name`
DEFAULTS = "the defaults"
LARGEST = 4 << 20  # bytes of a file
LONGEST, MOST_ALIASES = 1 << 19, 100  # characters and aliases of a document


class PlainLoader(yaml.SafeLoader):
    """A key is there once. Aliases are few and not inside of an anchored node, so that a small text stays small."""

    anchored = aliases = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        is_alias = self.check_event(yaml.AliasEvent)
        self.aliases += is_alias
        if is_alias and (self.anchored or self.aliases > MOST_ALIASES):
            raise yaml.MarkedYAMLError(problem="an alias is not possible here", problem_mark=event.start_mark)
        self.anchored += event.anchor is not None
        node: Any = super().compose_node(parent, index)
        self.anchored -= event.anchor is not None
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if str(key.value) in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return node


AS_TEXT: dict[str | None, Any] = {"tag:yaml.org,2002:timestamp": yaml.SafeLoader.construct_scalar}
PlainLoader.yaml_constructors = yaml.SafeLoader.yaml_constructors | AS_TEXT


def plain_data(text: str) -> Any:
    """The data of a YAML text that anyone may have written. Raises YAMLError if JSON cannot hold it."""
    if len(text) > LONGEST:
        raise yaml.YAMLError(f"longer than {LONGEST} characters")
    try:
        found = yaml.load(text, PlainLoader)
        if "\\u0000" in json.dumps(found, ensure_ascii=False).encode().decode():
            raise ValueError("a character that no text has")
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:  # `!!int x`, a huge number
        raise yaml.YAMLError(f"a value cannot be read: {error}") from None
    return found


def yaml_flaw(error: yaml.YAMLError | UnicodeDecodeError) -> str:
    """The flaw and its line, in one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark
        return error.problem if mark is None else f"{error.problem}, line {mark.line + 1}"
    return str(error).splitlines()[0]


def read_config(path: str | Path | None, overrides: Sequence[str] = (), *, params_of: ParamsOf | None) -> Config:
    """The config of `path` (none: all defaults) with `key=value` overrides applied.

    Without `params_of` the config is for a command that starts no environment: `env` may name none, and `env.own` is
    whatever it is. Raises UserError naming the file and the key for unknown keys, wrong types and impossible
    combinations, and whatever `params_of` raises.
    """
    where = str(path) if path else DEFAULTS
    data = read_yaml(Path(path), remedy="give --params a file such as params.yaml") if path else {}
    if not isinstance(data or {}, dict):
        raise UserError(f"{path}: params must be a mapping of sections; see schemas/params.schema.json")

    def read(overrides: Sequence[str]) -> Config:
        return config_of(apply_overrides(data or {}, overrides), where=where, params_of=params_of)

    return blaming(read, overrides, where=where)


def blaming(read: Callable[[Sequence[str]], Config], overrides: Sequence[str], *, where: str) -> Config:
    """`read(overrides)`, whose errors begin with `where`, or with the overrides that have caused them."""

    def flaw(left: Sequence[str]) -> str:
        try:
            read(left)
        except UserError as error:
            return str(error)
        return ""

    try:
        return read(overrides)
    except UserError as error:
        said = str(error)
        before, _, rest = said.partition(f"{where}: ")
        if before or not rest:
            raise
        causes = [one for i, one in enumerate(overrides) if flaw([*overrides[:i], *overrides[i + 1 :]]) != said]
        named = [one for one in causes if one.partition("=")[0] in rest]
        if not causes:
            raise
        raise UserError(f"{' '.join(f'--set {one}' for one in named or causes)}: {rest}") from None


def read_yaml(path: Path, *, remedy: str) -> Any:
    """The content of a YAML file. Raises UserError naming the file, with the `remedy` if it is missing."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: a folder, a pipe or a device, not a file; move it away, or name the right file")
    if not path.is_file():
        raise UserError(f"{path}: no such file; {remedy}")
    if path.stat().st_size > LARGEST:
        raise UserError(f"{path}: {path.stat().st_size:,} bytes, more than parameters can have; give the right file")
    try:
        return plain_data(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid YAML ({yaml_flaw(error)}); mend the file") from None


def config_of(data: Mapping[str, Any], *, where: str, params_of: ParamsOf | None) -> Config:
    """The config of nested params; `where` names their origin in errors. Raises UserError as `load_config` does."""
    config: Config = build(config_type(), data, where, "")
    if params_of is not None:
        if not config.env.name:
            raise UserError(
                f"{where}: env.name says no environment; set it, or give --env NAME (`rla envs` lists them)"
            )
        own = build(params_of(config.env.name), config.env.own or {}, where, "env.own.")
        config = replace(config, env=replace(config.env, own=own))
    config = with_own_parameters(decided(config), where=where)
    check_config(config, where)
    return config


def decided(config: Config) -> Config:
    """The config with open values decided by the keys that they follow from."""
    half = config.generator.dtype == "bfloat16"
    model = replace(config.model, reward=config.model.reward or config.model.policy)
    first = model.policy if config.warm_start.reward_from_policy else model.reward
    return replace(
        config,
        model=model,
        train_policy=protected(config.train_policy, half=half),
        train_rm=protected(config.train_rm, half=half),
        warm_start=warmed(
            config.warm_start,
            new=(model.policy == "init", first == "init"),
            lora=(config.train_policy.lora.rank > 0, config.train_rm.lora.rank > 0),
        ),
    )


def apply_overrides(data: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """`data` with `a.b=value` texts applied; values are read as YAML."""
    result: dict[str, Any] = json.loads(json.dumps(data))
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise UserError(f"--set {text}: expected key=value, for example --set rollout.rollouts_per_task=4")
        node = result
        *parents, last = key.split(".")
        for parent in parents:
            child = node[parent] = {} if node.get(parent) is None else node[parent]
            if not isinstance(child, dict):
                raise UserError(f"--set {text}: {parent} is not a section")
            node = child
        try:
            node[last] = plain_data(value)
        except yaml.YAMLError as error:
            raise UserError(
                f"--set {text}: {value!r} is not valid YAML ({yaml_flaw(error)}); quote it or close its brackets"
            ) from None
    return result


def build(section: Any, data: Any, where: str, prefix: str) -> Any:
    """An instance of the dataclass `section` from a mapping, every key, type and bound checked. Raises UserError, also
    if its `__post_init__` refuses the values.
    """
    if not isinstance(data, dict):
        raise UserError(f"{where}: {prefix.rstrip('.') or 'params'} must be a mapping of keys, not {data!r}")
    hints = get_type_hints(section)
    known = {entry.name: entry for entry in fields(section)}
    names = list(known)
    values = {}
    for key, value in data.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), names, n=1)
            other = "" if prefix else "no installed package has this section; "
            hint = f"did you mean {prefix}{near[0]}?" if near else f"{other}known: {', '.join(names)}"
            raise UserError(f"{where}: unknown key {prefix}{key}; {hint}")
        values[key] = coerce(hints[key], value, where, f"{prefix}{key}")
        if flaw := flaw_of(values[key], known[key].metadata):
            raise UserError(f"{where}: {prefix}{key} is {values[key]}; {flaw}")
    try:
        return section(**values)
    except (UserError, ValueError) as error:
        raise UserError(f"{where}: {prefix}{error}") from None


def coerce(hint: Any, value: Any, where: str, key: str) -> Any:
    """`value` as the annotation `hint` wants it; YAML reads 1e-6 as text, so numbers are parsed here."""
    if is_dataclass(hint):
        return build(hint, value, where, f"{key}.")
    args = get_args(hint)
    if hint is Any:
        return value
    if get_origin(hint) in (Union, UnionType):
        if value is None and type(None) in args:
            return None
        named = [one for one in args if get_origin(one) is Literal and value in get_args(one)]
        others = [one for one in args if get_origin(one) is not Literal]
        return coerce((named or others)[0], value, where, key)
    if args and args[-1] is Ellipsis and isinstance(value, list):
        return tuple(coerce(args[0], item, where, key) for item in value)
    if get_origin(hint) is tuple and isinstance(value, list) and len(value) == len(args):
        return tuple(coerce(one, item, where, key) for one, item in zip(args, value, strict=True))
    if args and get_origin(hint) is not tuple:
        if value not in args:
            raise UserError(f"{where}: {key} is {value!r}; choose one of {', '.join(map(str, args))}")
        return value
    if hint is float and not isinstance(value, bool):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
        raise UserError(f"{where}: {key} is {value!r}; expected a finite number")
    if hint in (int, str, bool) and type(value) is hint:
        return value
    wanted = getattr(hint, "__name__", None) if not args else "list" if args[-1] is Ellipsis else f"list of {len(args)}"
    raise UserError(f"{where}: {key} is {value!r}; expected {wanted}")


def resolved(config: Config, sections: Sequence[str] = ()) -> dict[str, Any]:
    """The config as plain data, restricted to `sections` (and the seed) when given: `env` or one key, `policy.reply`.

    Raises KeyError for a section or key that does not exist.
    """
    data: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    if not sections:
        return data
    kept: dict[str, Any] = {"seed": data["seed"]}
    for path in sections:
        *parents, last = path.split(".")
        source, target = data, kept
        for name in parents:
            source, target = source[name], target.setdefault(name, {})
        target[last] = source[last]
    return kept


def config_digest(config: Config, sections: Sequence[str]) -> str:
    """SHA-256 (16 hex digits) of the sections and keys that a stage reads: others may change without a rerun.

    Keys that are marked as without effect may change too.
    """
    text = json.dumps(effective_parameters(config, sections), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def effective_parameters(config: Config, sections: Sequence[str] = ()) -> dict[str, Any]:
    """`resolved` without the keys that no output depends on; `config_digest` digests it."""
    kept: dict[str, Any] = effective(config, resolved(config, sections))
    return kept


def effective(section: Any, data: Any) -> Any:
    """`data` of the dataclass `section` without the keys that no output depends on."""
    if not is_dataclass(section):
        return data
    kept = {}
    for entry in fields(section):
        if entry.name in data and entry.metadata.get("effect", True):
            name = entry.metadata.get("recorded_as")
            value = data[entry.name] if name is None else getattr(section, name)
            kept[entry.name] = effective(getattr(section, entry.name), value)
    return {name: value for name, value in kept.items() if value != {} or data[name] == {}}  # of some nothing is left


SECTIONS, ENGINES, LAUNCHERS = "rla.sections", "rla.engines", "rla.launchers"
BUILTIN = ("transformers", "vllm", "server", "scripted")  # engines without parameters of their own


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


def with_own_parameters(config: Config, *, where: str) -> Config:
    """`config` with `own` of generator, launch and pool as the package that each of them names has it.

    `own` is None if the core itself does the work. Raises UserError, beginning with `where`, for a name that is not
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


SHOWN = 5  # parameters that an error names
LONGEST_VALUE = 60  # characters of a value


class Absent(Enum):
    """The value of a parameter that one of the two does not have."""

    ABSENT = "not there"


ABSENT = Absent.ABSENT
Differences = dict[str, tuple[Any, Any]]  # dotted key -> (old value, new value)


def flattened(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value, of nested parameters. A list is a value, and so is an empty section."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            found |= flattened(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def parameter_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Differences:
    """The parameters that differ, in order of `new`, followed by parameters that only `old` has."""
    before, now = flattened(old), flattened(new)
    found = {key: (before.get(key, ABSENT), value) for key, value in now.items() if before.get(key, ABSENT) != value}
    return found | {key: (value, ABSENT) for key, value in before.items() if key not in now}


def differences_text(found: Differences, *, shown: int = SHOWN, now: str = "this call has") -> str:
    """The differences in one line. `now`: the owner of the second values. Values are shown as JSON, because the file
    may be untrusted.
    """
    texts = [
        f"{shown_key(key)} {shown_value(old)}, {now} {shown_value(new)}"
        for key, (old, new) in list(found.items())[:shown]
    ]
    return "; ".join(texts) + (f"; and {len(found) - shown} more" if len(found) > shown else "")


def shown_key(key: str) -> str:
    """A key as it is if it looks like one, else as `shown_value`."""
    return (
        key if key.replace(".", "").replace("-", "").isidentifier() and len(key) <= LONGEST_VALUE else shown_value(key)
    )


def shown_value(value: Any) -> str:
    """A plain word as it is, all else as JSON; long ones are cut."""
    if value is ABSENT:
        return str(ABSENT.value)
    plain = isinstance(value, str) and value.isascii() and value.isidentifier()
    text = str(value) if plain else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 3]}..."
