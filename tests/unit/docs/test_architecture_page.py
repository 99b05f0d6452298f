"""The table of docs/explain/architecture.md: every import between packages stands in it, and it has no circle."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

from tests.unit.docs.markdown_pages import DOCS, TOP

HEADING = "## Who may import whom"


def table() -> dict[str, set[str]]:
    """Package -> what it may import."""
    _, _, section = (DOCS / "explain" / "architecture.md").read_text().partition(HEADING)
    allowed: dict[str, set[str]] = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            packages, imported = (set(re.findall(r"`(\w+)`", cell)) for cell in line.split("|")[1:3])
            allowed |= {package: imported - {"rla"} for package in packages}
    return allowed


def package_of(module: str) -> str:
    """`rla.store.shards` is of `store`, `stages.rollout` of `stages`."""
    top, *rest = module.split(".")
    return rest[0] if top == "rla" and rest else top


def imports(path: Path) -> set[str]:
    """The packages that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        found |= {package_of(name) for name in names if name.split(".")[0] in ("rla", "stages")}
    return found - {"rla"}  # the version


def test_every_import_stands_in_the_table() -> None:
    allowed, missing = table(), set()
    for path in [*(TOP / "rla").glob("*/**/*.py"), *(TOP / "stages").rglob("*.py")]:
        package = package_of(".".join(path.relative_to(TOP).with_suffix("").parts))
        missing |= {(package, other) for other in imports(path) - allowed.get(package, set()) - {package}}
    assert not sorted(missing)


def test_the_table_has_no_circle() -> None:
    assert "store" in list(TopologicalSorter(table()).static_order())
