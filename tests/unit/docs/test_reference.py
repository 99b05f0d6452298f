"""The reference is made from the code, and so are the tables of the paper's parameters."""

from __future__ import annotations

import re

import pytest

from docs.generate.commands import command_pages
from docs.generate.modules import PAGES
from docs.generate.protocols import MODULE
from docs.generate.published import PAGE, rows, with_tables
from docs.generate.source import read_module
from tests.unit.docs.markdown_pages import DOCS


def test_pages_do_not_depend_on_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    narrow = command_pages()
    monkeypatch.setenv("COLUMNS", "200")
    assert command_pages() == narrow


def test_a_module_that_does_not_exist_is_refused() -> None:
    with pytest.raises(FileNotFoundError, match=r"no module rla\.nothing"):
        read_module("rla.nothing")


def test_the_table_of_the_papers_parameters_is_that_of_the_params_files() -> None:
    page = PAGE.read_text()
    assert with_tables(page) == page, "call `make -f tests/bench/Makefile docs-tables` and commit what it writes"
    assert page.count("| reward model | `model.reward` |") == 3


ROW = {"name": "rollouts", "key": "k", "paper": 8, "at": "3.1.1", "code": 8}


@pytest.mark.parametrize(
    ("change", "flaw"),
    [
        ({"paper": ""}, "empty cell: paper"),
        ({"code": None}, "empty cell: code"),
        ({"ours": " "}, "empty cell: ours"),
        ({"at": ""}, "does not name the place"),
        ({"paper": "not stated"}, "names a place, but the paper says nothing"),
        ({"paper": 16}, "differs from the paper without a reason"),
        ({"paper": "not stated", "at": "", "code": 16}, "differs from the code without a reason"),
    ],
)
def test_a_row_without_a_value_a_place_or_a_reason_is_refused(change: dict[str, object], flaw: str) -> None:
    with pytest.raises(ValueError, match=flaw):
        list(rows([ROW | change], {"k": 8}))


def test_a_remark_and_a_models_owner_make_no_difference() -> None:
    entry = {"name": "policy", "key": "k", "paper": "Qwen3-4B (frozen)", "at": "C.1", "code": "set by the user"}
    assert list(rows([entry], {"k": "Qwen/Qwen3-4B"})) == [
        ("policy", "`k`", "Qwen3-4B (frozen) [C.1]", "set by the user", "Qwen/Qwen3-4B")
    ]


def test_the_tables_say_how_an_update_is_protected() -> None:
    page = PAGE.read_text()
    for key in ("train_policy.old", "train_policy.dual_clip"):
        assert page.count(f"`{key}`") >= 3, key


def test_what_authors_of_environments_import_is_in_the_reference() -> None:
    pages = (DOCS / "guide/bring-an-environment.md", DOCS / "tutorial/4-add-an-environment.md")
    example = DOCS.parent / "examples/guess-number/guess_number.py"
    imported = re.findall(r"^from (rla\.[\w.]+) import", example.read_text(), re.MULTILINE)
    for page in pages:
        imported += re.findall(r"from (rla\.[\w.]+) import", page.read_text())
    described = {MODULE} | {module for _, modules in PAGES.values() for module in modules}
    assert set(imported) - described - {"rla.config"} == set()
