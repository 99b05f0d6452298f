"""The page of every parameter: key, type, default, and the comment that stands beside it in the code."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from docs.generate.markdown import cell, code, link, listed, page, prose, table
from docs.generate.source import field_comments
from rla.config.load import ENGINES, MODELS, config_type
from rla.config.schema import KEY, bounds_in_words
from rla.envs.registry import installed_environments, params_of
from rla.plugins import loaded, registered
from stages import STAGES

BROUGHT = {"generator": ENGINES, "model": MODELS}  # section -> entry points of packages that fill its `own`
NAMES = {int: "integer", float: "number", str: "text", bool: "true or false", Any: ""}
INTRODUCTION = """\
A params file, such as `params.yaml`, names the keys that differ from their defaults. `rla <stage> --set KEY=VALUE`
overrides one of them for one call. `rla params --schema` prints all of this as a JSON Schema, which editors read.

Numbers outside of the range that stands beside their type are refused, as are NaN, infinity and keys that stand twice.

A key marked † changes no output: you may change it within a run, and no stage is run again because of it."""


class Row(NamedTuple):
    """One parameter."""

    key: str
    kind: str
    default: str
    meaning: str


def parameters_page() -> str:
    """All sections, those of packages last. Below `env`, `generator` and `model`: the own parameters of each installed
    environment, engine and architecture.
    """
    config = config_type()()
    blocks = [f"## {name}\n\n{table_of(list(rows(config, '', only=name)))}" for name in ("name", "seed")]
    for entry in fields(config):
        section = getattr(config, entry.name)
        if is_dataclass(section):
            said = [prose(type(section).__doc__), read_by(entry.name), table_of(list(rows(section, f"{entry.name}.")))]
            blocks.append("\n\n".join([f"## {entry.name}", *(text for text in said if text)]))
        if entry.name == "env":
            blocks += [own("env", name, params_of(name)) for name in installed_environments()]
        if entry.name in BROUGHT:
            brought = registered(BROUGHT[entry.name]).items()
            blocks += [own(entry.name, name, loaded(one)) for name, one in brought]
    return page("Parameters", INTRODUCTION, *blocks)


def own(section: str, name: str, kind: type) -> str:
    """The parameters that only one environment, engine or architecture has."""
    found = table_of(list(rows(unchecked(kind), f"{section}.own.")))
    return f"### {section}.own of {name}\n\n{prose(kind.__doc__)}\n\n{found}"


def unchecked(kind: Any) -> Any:
    """An instance with the defaults, even if `__post_init__` refuses them, as that of the engine `server` does."""
    made = object.__new__(kind)
    for entry in fields(kind):
        default = entry.default if entry.default_factory is MISSING else entry.default_factory()
        object.__setattr__(made, entry.name, default)
    return made


def rows(section: Any, prefix: str, only: str | None = None) -> Iterator[Row]:
    """A row for each key, those of nested sections in their place."""
    kind = type(section)
    hints = get_type_hints(kind)
    said: dict[str, str] = {}
    for base in filter(is_dataclass, reversed(kind.__mro__)):
        said |= field_comments(base.__module__, base.__name__)
    for entry in fields(section):
        value, key = getattr(section, entry.name), f"{prefix}{entry.name}"
        if only not in (None, entry.name) or not entry.init:
            continue
        if is_dataclass(value):
            yield Row(code(key), "section", "", cell(first_line(value, said[entry.name])))
            yield from rows(value, f"{key}.")
        else:
            free = not entry.metadata.get("effect", True) and not entry.metadata.get("recorded")
            mark = " †" if free else ""
            any_kind = hints[entry.name] is Any  # `own`, whose type is the environment's or the package's to say
            meaning = cell(said[entry.name] or "what the environment itself has, listed below")
            yield Row(
                code(key) + mark,
                type_and_bounds(hints[entry.name], entry.metadata),
                "" if any_kind else code(shown(value)),
                meaning,
            )


def table_of(found: list[Row]) -> str:
    return table(("key", "type", "default", ""), found)


def first_line(section: Any, comment: str) -> str:
    """The comment of the key, or else what its class says of itself."""
    return comment or (type(section).__doc__ or "").strip().splitlines()[0]


def read_by(section: str) -> str:
    """The stages whose outputs depend on the section."""
    names = [spec.name for spec in STAGES if any(path.split(".")[0] == section for path in spec.sections)]
    pages = [link(f"`{name}`", f"commands/{name}.md") for name in names]
    return f"Outputs that depend on it: those of {', '.join(pages)}." if pages else ""


def type_and_bounds(hint: Any, metadata: Mapping[str, Any]) -> str:
    """`integer, 1 or more`."""
    bounds = bounds_in_words(metadata.get(KEY, {}))
    return ", ".join(part for part in (type_name(hint), bounds) if part)


def type_name(hint: Any) -> str:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "one of " + listed(args)
    if origin is tuple:
        return f"list of {type_name(args[0]).removeprefix('one of ')}"
    if origin in (Union, types.UnionType):
        names = ("null" if item is type(None) else type_name(item).removeprefix("one of ") for item in args)
        return " or ".join(names)
    return NAMES[hint]


def shown(value: Any) -> str:
    """A default as it would stand in a params file."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(shown, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return '""' if value == "" else str(value)
