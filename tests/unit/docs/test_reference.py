"""The pages below docs/reference/ are those that the code makes now."""

from __future__ import annotations

import pytest

from docs.generate.pages import reference_pages
from docs.generate.published import PAGE, with_tables
from tests.unit.docs.markdown_pages import DOCS

FOLDER = DOCS / "reference"


def test_the_committed_pages_are_those_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    expected = reference_pages()
    found = {path.relative_to(FOLDER).as_posix(): path.read_text() for path in FOLDER.rglob("*.md")}
    stale = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    assert not stale, "call `make docs-reference` and commit what it writes"


def test_the_table_of_the_papers_parameters_is_that_of_the_params_files() -> None:
    page = PAGE.read_text()
    assert with_tables(page) == page, "call `make docs-reference` and commit what it writes"
    assert page.count("| reward model | `model.reward` |") == 2
