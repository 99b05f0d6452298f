"""The pages below docs/reference/ are those that the code makes now."""

from __future__ import annotations

import re

import pytest

from docs.generate.modules import PAGES
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


def test_what_authors_of_environments_import_is_in_the_reference() -> None:
    pages = (DOCS / "guide/bring-an-environment.md", DOCS / "tutorial/4-add-an-environment.md")
    example = DOCS.parent / "examples/guess-number/guess_number.py"
    imported = re.findall(r"^from (rla\.[\w.]+) import", example.read_text(), re.MULTILINE)
    for page in pages:
        imported += re.findall(r"from (rla\.[\w.]+) import", page.read_text())
    described = {module for _, modules in PAGES.values() for module in modules}
    assert set(imported) - described - {"rla.config"} == set()
