"""A hook of MkDocs: the part of the navigation below `Reference` follows the pages that there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

GROUPS = {"Commands": "commands", "Shards": "shards", "Modules": "modules"}
SINGLE = ("index.md", "parameters.md", "protocols.md")


def on_config(config: Any) -> None:
    """Called by `mkdocs build` with its configuration, whose `nav` it fills."""
    for entry in config["nav"]:
        if isinstance(entry, dict) and "Reference" in entry:
            entry["Reference"] = reference_entries(Path(config["docs_dir"]))


def reference_entries(docs: Path) -> list[Any]:
    """The single pages, then a section for each group."""
    folders: list[Any] = [
        {title: sorted(page.relative_to(docs).as_posix() for page in (docs / "reference" / name).glob("*.md"))}
        for title, name in GROUPS.items()
    ]
    return [*(f"reference/{name}" for name in SINGLE), *folders]
