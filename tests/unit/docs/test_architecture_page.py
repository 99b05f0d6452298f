"""docs/explain/architecture.md shows the table of imports that `tests/unit/test_architecture.py` holds."""

from __future__ import annotations

import re

from tests.unit.docs.markdown_pages import DOCS
from tests.unit.test_architecture import MAY_IMPORT

HEADING = "## Who may import whom"
UNNAMED = {"rla", "__main__"}  # the version, and the entry point


def shown() -> dict[str, set[str]]:
    """Package -> what it may import, as the page has it."""
    _, _, section = (DOCS / "explain" / "architecture.md").read_text().partition(HEADING)
    allowed: dict[str, set[str]] = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            packages, imported = (set(re.findall(r"`(\w+)`", cell)) for cell in line.split("|")[1:3])
            allowed |= dict.fromkeys(packages, imported)
    return allowed


def test_the_page_shows_the_table_that_is_tested() -> None:
    assert shown() == {name: others - UNNAMED for name, others in MAY_IMPORT.items() if name not in UNNAMED}
