"""Pages of public modules: what each says of itself, and its public classes and functions."""

from __future__ import annotations

from collections.abc import Iterator

from docs.generate.markdown import fenced, page, prose
from docs.generate.source import Definition, read_module

# Page -> its title and modules, those of packages included. Everything that a page shows is named here.
PAGES = {
    "envs": (
        "rla.envs",
        (
            "rla.envs.observation",
            "rla.envs.protocols",
            "rla.envs.chat_prompts",
            "rla.envs.authoring",
            "rla_study.contract",
            "rla.envs.registry",
        ),
    ),
    "store": (
        "rla.store",
        (
            "rla.store",
            "rla.store.records",
            "rla.store.layout",
            "rla.store.manifest",
            "rla.store.shards",
            "rla.store.reading",
            "rla.store.frames",
        ),
    ),
    "pictures": ("rla.pictures", ("rla.pictures.prompts", "rla.pictures.shard")),
    "credit": (
        "rla.credit",
        ("rla.credit.advantages", "rla.credit.estimators", "rla.credit.consistency"),
    ),
    "metrics": (
        "rla.metrics",
        (
            "rla.metrics.custom",
            "rla.metrics.diagnostics",
            "rla.metrics.intervals",
            "rla_study.metrics.bootstrap",
        ),
    ),
    "training": (
        "rla.training",
        ("rla.training.losses", "rla.training.packing"),
    ),
    "report": ("rla.report", ("rla.report.tables", "rla.report.collect")),
    "engines": ("rla.llm", ("rla.llm.base", "rla.llm.chat", "rla.llm.factory")),
    "adaptation": (
        "rla.adaptation",
        ("rla.adaptation.selection", "rla.adaptation.acceptance"),
    ),
}


def module_pages() -> dict[str, str]:
    """`modules/<name>.md` for every page."""
    return {f"modules/{name}.md": page(title, *sections(modules)) for name, (title, modules) in PAGES.items()}


def sections(modules: tuple[str, ...]) -> Iterator[str]:
    for name in modules:
        source = read_module(name)
        yield f"## {name}"
        yield prose(source.docstring)
        for entry in source.definitions():
            if name != "rla.envs.protocols" or "(Protocol)" not in entry.signature:  # they have a page of their own
                yield described(entry)


def described(entry: Definition) -> str:
    """A class or function under a heading of its own, methods with their signatures below it."""
    blocks = [f"### {entry.name}", fenced(entry.signature), prose(entry.docstring)]
    for member in entry.members:
        blocks += [fenced(member.signature), prose(member.docstring)]
    return "\n\n".join(text for text in blocks if text)
