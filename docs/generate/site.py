"""The sources of the site: every page in one folder, with the navigation, for a builder that knows no hooks.

They are the files of `docs/` and `packages/*/docs/`, the README of each package, SECURITY.md, and the reference, which
is made from the code. Written pages link to files of the repository, so their links work there, too. On the site a link
to a page leads to its place on the site, and a link to a source leads to the reference page that is made from it.
"""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from docs.generate.modules import PAGES
from docs.generate.pages import reference_pages
from docs.generate.source import PACKAGES, TOP
from rla.store.layout import SHARD_KINDS
from stages import STAGES

GROUPS = {"Commands": "commands", "Shards": "shards", "Modules": "modules"}
SINGLE = ("index.md", "parameters.md", "protocols.md")
NO_PAGES = ("generate", "__pycache__")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]+)")  # without those within a page and to elsewhere
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def write_sources(folder: Path) -> None:
    """Fill `folder` with `mkdocs.yml` and the pages below `docs/`. The site will be built into its `site/`.

    Raises ValueError if the navigation lacks a page or names one that does not exist.
    """
    shutil.rmtree(folder, ignore_errors=True)
    places = site_places()
    for source, place in places.items():
        target = folder / "docs" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.endswith(".md"):
            text = (TOP / source).read_text(encoding="utf-8")
            target.write_text(with_site_links(text, source, places | made_from()), encoding="utf-8")
        else:
            shutil.copyfile(TOP / source, target)
    write_reference(folder / "docs/reference")
    config = yaml.safe_load((TOP / "mkdocs.yml").read_text(encoding="utf-8"))
    config["nav"] = with_reference(config["nav"], folder / "docs")
    named = set(pages_of(config["nav"]))
    found = {path.relative_to(folder / "docs").as_posix() for path in (folder / "docs").rglob("*.md")}
    if named != found:
        raise ValueError(f"mkdocs.yml: its nav and the pages differ: {', '.join(sorted(named ^ found))}")
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


def write_reference(folder: Path) -> None:
    for name, text in reference_pages().items():
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")


def site_places() -> dict[str, str]:
    """File of the repository -> its place on the site."""
    places = {"SECURITY.md": "SECURITY.md"}
    places |= {f"packages/{root.name}/README.md": f"guide/{root.name}.md" for root in PACKAGES}
    for root in (TOP, *PACKAGES):
        docs = root / "docs"
        for path in sorted(docs.rglob("*")):
            place = path.relative_to(docs)
            if path.is_file() and not set(place.parts) & {*NO_PAGES}:
                places[path.relative_to(TOP).as_posix()] = place.as_posix()
    return places


def made_from() -> dict[str, str]:
    """Source in the repository -> the reference page that is made from it."""
    return {
        "docs/generate": "reference/index.md",
        "schemas/params.schema.json": "reference/parameters.md",
        "rla/envs/protocols.py": "reference/protocols.md",
        **{f"schemas/{kind}.schema.json": f"reference/shards/{kind}.md" for kind in SHARD_KINDS.values()},
        **{f"{spec.module.replace('.', '/')}.py": f"reference/commands/{spec.name}.md" for spec in STAGES},
        **{title.replace(".", "/"): f"reference/modules/{name}.md" for name, (title, _) in PAGES.items()},
    }


def with_site_links(text: str, source: str, places: Mapping[str, str]) -> str:
    """`text` of the file `source`, with links between files of the repository as links between pages.

    Raises ValueError for a link to a file that is not on the site. Zensical itself checks links to pages and anchors,
    but not those to images and other files.
    """
    folder, place = posixpath.dirname(source), posixpath.dirname(places[source])

    def moved(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, found[1]))
        if target not in places:
            raise ValueError(f"{source}: its link {found[1]} leads to nothing on the site")
        return f"]({posixpath.relpath(places[target], place or '.')}"

    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in FENCE.split(text))


def with_reference(nav: list[Any], docs: Path) -> list[Any]:
    """The navigation, with the reference pages that there are below `Reference`."""
    groups: list[Any] = [
        {title: sorted(page.relative_to(docs).as_posix() for page in (docs / "reference" / name).glob("*.md"))}
        for title, name in GROUPS.items()
    ]
    reference = [*(f"reference/{name}" for name in SINGLE), *groups]
    return [{"Reference": reference} if "Reference" in entry else entry for entry in nav]


def pages_of(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_of(entry)
