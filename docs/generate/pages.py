"""All reference pages: path below `docs/reference/` -> Markdown."""

from __future__ import annotations

from docs.generate.commands import command_pages
from docs.generate.markdown import link, page, table
from docs.generate.modules import module_pages
from docs.generate.parameters import parameters_page
from docs.generate.protocols import protocols_page
from docs.generate.shards import shard_pages


def reference_pages() -> dict[str, str]:
    """Every page; equal code gives equal pages."""
    commands, shards, modules = command_pages(), shard_pages(), module_pages()
    pages = {
        **commands,
        "parameters.md": parameters_page(),
        **shards,
        "protocols.md": protocols_page(),
        **modules,
    }
    return {"index.md": index(commands, shards, modules), **pages}


def index(*groups: dict[str, str]) -> str:
    """The first page: a table of all others."""
    commands, shards, modules = groups
    rows = [
        ("Commands", links(commands)),
        ("Parameters", link("every key of `params.yaml`", "parameters.md")),
        ("Shards", links(shards)),
        ("Environments", link("the protocols of an environment", "protocols.md")),
        ("Modules", links(modules)),
    ]
    return page(
        "Reference",
        "`make docs-reference` makes these pages from the code: from docstrings, from `schemas/` and from the command "
        "line. Change the code, then make them again.",
        table(("", ""), rows),
    )


def links(pages: dict[str, str]) -> str:
    return ", ".join(link(title(text), path) for path, text in pages.items())


def title(text: str) -> str:
    """The first heading of a page."""
    return text.splitlines()[0].removeprefix("# ")
