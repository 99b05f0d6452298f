"""All reference pages: path below `reference/` -> Markdown."""

from __future__ import annotations

import posixpath
import re

from docs.generate.commands import command_pages
from docs.generate.markdown import link, page
from docs.generate.modules import module_pages
from docs.generate.parameters import parameters_page
from docs.generate.protocols import protocols_page
from docs.generate.shards import shard_pages

GUIDE = re.compile(r"`docs/([\w/-]+\.md)`")


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
    return {path: linked(path, text) for path, text in {"index.md": index(commands, shards, modules), **pages}.items()}


def linked(path: str, text: str) -> str:
    """`text` of the page `path`, in which every `docs/<page>.md` of a docstring is a link."""
    here = posixpath.join("reference", posixpath.dirname(path))
    return GUIDE.sub(lambda found: link(found[1], posixpath.relpath(found[1], here)), text)


def index(commands: dict[str, str], shards: dict[str, str], modules: dict[str, str]) -> str:
    """The first page: every other one with its first sentence."""
    return page(
        "Reference",
        "`make docs` makes these pages from the code: from docstrings, from `schemas/` and from the command line.",
        "- [Parameters](parameters.md): every key of a params file, with its default.\n"
        "- [Protocols](protocols.md): what an environment may offer.",
        "## Commands",
        listing(commands),
        "## Shards",
        listing(shards),
        "## Modules",
        "\n".join(f"- {link(title(text), path)}" for path, text in modules.items()),
    )


def listing(pages: dict[str, str]) -> str:
    return "\n".join(f"- {link(title(text), path)}: {sentence(text)}" for path, text in pages.items())


def title(text: str) -> str:
    """The first heading of a page."""
    return text.splitlines()[0].removeprefix("# ")


def sentence(text: str) -> str:
    """The first sentence below the heading."""
    return text.split("\n\n")[1].split(". ")[0].rstrip(".") + "."
