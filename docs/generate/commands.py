"""One page for each command: what it does, its folders, its options. Made from the command line's own objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from docs.generate.markdown import cell, code, escaped, fenced, link, page, table
from rla.cli.app import app
from rla.pipeline import StageSpec
from rla.store.layout import path_below


def command_pages() -> dict[str, str]:
    """`commands/<name>.md` for every command and every group of commands."""
    root: Any = typer.main.get_command(app)
    context = root.make_context("rla", [], resilient_parsing=True)
    pages = {}
    for listed in root.list_commands(context):
        name, command, _ = root.resolve_command(context, [listed])
        spec = getattr(command.callback, "spec", None)
        pages[f"commands/{name}.md"] = stage_page(command, spec) if spec else command_page(name, command)
    return pages


def stage_page(command: Any, spec: StageSpec) -> str:
    """A stage: beside its options, the folders that it reads and writes and the parameters it depends on."""
    folders = [*(folder(name, artifact, "reads") for name, artifact in spec.reads)]
    folders += [folder(name, artifact, "writes") for name, artifact in spec.writes]
    keys = [link(f"`{path}`", f"../parameters.md#{path.split('.')[0]}") for path in spec.sections]
    return page(
        f"rla {spec.name}",
        escaped(spec.summary),
        fenced(spec.example, "bash"),
        "## Folders",
        "Each folder lies where the run's convention has it, unless its option names another.",
        table(("", "option", "lies in"), folders),
        f"The output depends on the parameters {', '.join(keys)}." if keys else "",
        "## Options",
        options(command),
    )


def folder(option: str, artifact: str, verb: str) -> tuple[str, str, str]:
    place = path_below(artifact).replace("{i}", "<i>").replace("{p}", "<i-1>")
    return verb, code(f"--{option}"), code(f"<run>/{place}")


def command_page(name: str, command: Any) -> str:
    """A command that is no stage, or a group of commands."""
    return page(f"rla {name}", *described(f"rla {name}", command))


def described(words: str, command: Any) -> Iterator[str]:
    text, _, example = (command.help or "").partition("Example: ")
    yield escaped(" ".join(text.split()))
    if example:
        yield fenced(" ".join(example.split()), "bash")
    if inner := getattr(command, "commands", {}):
        for name, child in inner.items():
            yield f"## {words} {name}"
            yield from described(f"{words} {name}", child)
        return
    yield options(command)


def options(command: Any) -> str:
    """A table of arguments and options, in the order of the help text."""
    rows = [
        (spelled(entry), "" if is_flag(entry) else code(value_of(entry)), default_of(entry), cell(entry.help or ""))
        for entry in sorted(command.params, key=lambda entry: entry.param_type_name)
    ]
    return table(("option", "value", "default", ""), rows) if rows else ""


def spelled(entry: Any) -> str:
    """`--name`; an argument by its own name."""
    if entry.param_type_name == "argument":
        return code(entry.name.upper())
    return ", ".join(code(name) for name in (*entry.opts, *entry.secondary_opts))


def is_flag(entry: Any) -> bool:
    """Whether it stands without a value; arguments never do."""
    return bool(getattr(entry, "is_flag", False))


def value_of(entry: Any) -> str:
    return str(entry.metavar or entry.type_descriptor.annotation.__name__.upper()).replace("STR", "TEXT")


def default_of(entry: Any) -> str:
    if entry.required:
        return "required"
    if is_flag(entry) or entry.default in (None, (), []):
        return "may be repeated" if entry.multiple else ""
    return code(str(entry.default))
