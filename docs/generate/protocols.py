"""The page of what an environment may offer: each protocol with its members, and which built-in environment has it."""

from __future__ import annotations

from docs.generate.markdown import code, fenced, page, prose, table
from docs.generate.source import Definition, read_module
from rla.envs import protocols
from rla.envs.registry import environment, installed_environments

MODULE = "rla.envs.protocols"
INTRODUCTION = """\
An environment is a class. It has an ability where it has the members of that protocol: it inherits from nothing.
`Env` is the only required one. A stage that cannot do without an ability ends with one line that names the protocol
and the parameter that switches the stage off.

[Add an environment](../tutorial/4-add-an-environment.md) builds one step by step. The types that appear below are on
the page of [environments](modules/envs.md)."""


def protocols_page() -> str:
    """The protocols in the order of the module. Those above `Env`, which abilities hand out, come last."""
    entries = [entry for entry in read_module(MODULE).definitions() if "(Protocol)" in entry.signature]
    first = [entry.name for entry in entries].index("Env")
    found = entries[first:]
    remedies = {ability.__name__: remedy for ability, remedy in protocols.REMEDIES.items()}
    return page(
        "Protocols of an environment",
        INTRODUCTION,
        "## Who has what",
        table(
            ("protocol", *map(code, installed_environments())),
            [(code(entry.name), *marks(entry.name)) for entry in found],
        ),
        *(section(entry, remedies.get(entry.name, "")) for entry in (*found, *entries[:first])),
    )


def marks(name: str) -> list[str]:
    """Whether each installed environment has the protocol."""
    ability = getattr(protocols, name)
    return ["yes" if isinstance(environment(target), ability) else "" for target in installed_environments()]


def section(entry: Definition, remedy: str) -> str:
    blocks = [f"## {entry.name}", prose(entry.docstring)]
    attributes = entry.signature.splitlines()[1:]
    if attributes:
        blocks.append(fenced("\n".join(line.strip() for line in attributes)))
    for member in entry.members:
        blocks += [fenced(member.signature), prose(member.docstring)]
    if remedy:
        blocks.append(f"Without it: {remedy.replace('set ', 'set `')}`." if remedy.startswith("set ") else remedy)
    return "\n\n".join(text for text in blocks if text)
