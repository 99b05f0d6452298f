"""A hook of MkDocs: the navigation below `Reference` follows the pages that there are, and SECURITY.md is one of them.

That file stands at the top of the repository. Links to it and in it are those of the repository; the site has its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

GROUPS = {"Commands": "commands", "Shards": "shards", "Modules": "modules"}
SECURITY = "SECURITY.md"
SINGLE = ("index.md", "parameters.md", "protocols.md")


def on_config(config: Any) -> None:
    """Called by `mkdocs build` with its configuration, whose `nav` it fills."""
    for entry in config["nav"]:
        if isinstance(entry, dict) and "Reference" in entry:
            entry["Reference"] = reference_entries(Path(config["docs_dir"]))


def on_files(files: Any, config: Any) -> Any:
    """Called with the files of the site, to which SECURITY.md comes."""
    from mkdocs.structure.files import File

    text = (Path(config["docs_dir"]).parent / SECURITY).read_text(encoding="utf-8")
    files.append(File.generated(config, SECURITY, content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called with the text of each page: the site's SECURITY.md lies one folder deeper than the repository's."""
    up = "../" * page.file.src_uri.count("/")
    return markdown.replace(f"](../{up}{SECURITY})", f"]({up}{SECURITY})")


def reference_entries(docs: Path) -> list[Any]:
    """The single pages, then a section for each group."""
    folders: list[Any] = [
        {title: sorted(page.relative_to(docs).as_posix() for page in (docs / "reference" / name).glob("*.md"))}
        for title, name in GROUPS.items()
    ]
    return [*(f"reference/{name}" for name in SINGLE), *folders]
