"""Metrics and tables against values worked out by hand."""

from __future__ import annotations

import pytest
from rla_screens.desktop.measuring import metric_score
from rla_screens.desktop.tables import TableFlaw, cell_place, read_sheets

FLAT = """<?xml version="1.0"?>
<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0">
<office:body><office:spreadsheet><table:table table:name="One">
<table:table-row><table:table-cell table:number-columns-repeated="2"/>
<table:table-cell office:value="2.50"><text:p>2,5</text:p></table:table-cell></table:table-row>
<table:table-row table:number-rows-repeated="2">
<table:table-cell><text:p>a</text:p></table:table-cell></table:table-row>
<table:table-row table:number-rows-repeated="1048570"/>
</table:table></office:spreadsheet></office:body></office:document>"""


def score(name: str, result: object, expected: object = None, **options: object) -> float:
    return metric_score(name, result, expected, options, has_expected=expected is not None)


@pytest.mark.parametrize(
    ("name", "result", "expected", "options", "wanted"),
    [
        ("exact_match", "a\n", {"expected": "a\n"}, {}, 1.0),
        ("exact_match", "a", {"expected": "a\n"}, {}, 0.0),
        ("check_include_exclude", "one two", {"include": ["one"], "exclude": ["three"]}, {}, 1.0),
        ("check_include_exclude", "one two", {"include": ["one"], "exclude": ["two"]}, {}, 0.0),
        ("check_include_exclude", ["a b"], {"include": ["a"]}, {}, 0.0),
        ("check_cells", b"\xff\xfe" + FLAT.encode("utf-16-le"), {"cells": {}}, {}, 0.0),
        ("check_lines", b"a \nb\n\n", {"lines": ["a", "b"]}, {}, 1.0),
        ("check_lines", b"a\r\n\xe9", {"lines": ["a", "\u00e9"]}, {}, 1.0),
        ("check_lines", b"a\nc", {"lines": ["a", "b"], "share": True}, {}, 0.5),
        ("check_cells", FLAT.encode(), {"cells": {"C1": "2.5", "A2": "a", "B2": ""}, "sheets": ["One"]}, {}, 1.0),
        ("check_cells", FLAT.encode(), {"cells": {"C1": "2.50"}}, {}, 0.0),
        ("check_cells", FLAT.encode(), {"cells": {}, "sheet": "Two"}, {}, 0.0),
        ("check_cells", b"<broken", {"cells": {}}, {}, 0.0),
        ("check_cells", b"PK", {"cells": {}}, {}, 0.0),
        ("check_cells", "no file", {"cells": {}}, {}, 0.0),
        ("exact_match", None, {"expected": None}, {}, 0.0),
    ],
)
def test_a_metric(name: str, result: object, expected: object, options: dict[str, object], wanted: float) -> None:
    assert score(name, result, expected, **options) == wanted


def test_cells_of_a_document() -> None:
    assert read_sheets(FLAT.encode()) == {"One": {"C1": "2.5", "A2": "a", "A3": "a"}}


def test_documents_that_declare_entities_are_no_tables() -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>'
    with pytest.raises(TableFlaw):
        read_sheets(bomb)


def test_places_beyond_the_last_letter() -> None:
    assert [cell_place(0, 25), cell_place(9, 26), cell_place(0, 52)] == ["Z1", "AA10", "BA1"]


def flat(tables: str) -> bytes:
    return (
        FLAT[: FLAT.index("<table:table ")] + tables + "</office:spreadsheet></office:body></office:document>"
    ).encode()


def odf_table(rows: int, columns: int, text: str = "a") -> str:
    cell = f'<table:table-cell table:number-columns-repeated="{columns}"><text:p>{text}</text:p></table:table-cell>'
    return f'<table:table><table:table-row table:number-rows-repeated="{rows}">{cell}</table:table-row></table:table>'


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(flat(odf_table(10_001, 1)), id="rows"),
        pytest.param(flat(odf_table(1, 257)), id="columns"),
        pytest.param(flat(odf_table(10_000, 21)), id="cells"),
        pytest.param(flat(odf_table(10_000, 11) * 2), id="cells of two tables"),
        pytest.param(flat(odf_table(-1, 1)), id="rows below zero"),
    ],
)
def test_a_sheet_that_is_too_large_is_no_table(data: bytes) -> None:
    with pytest.raises(TableFlaw):
        read_sheets(data)


def test_a_sheet_may_be_as_large_as_the_bounds_say() -> None:
    assert len(read_sheets(flat(odf_table(10_000, 20)))[""]) == 200_000
    assert read_sheets(flat(odf_table(1, 256)))[""]["IV1"] == "a"


def test_texts_within_texts_and_tables_within_tables_count_once() -> None:
    row = "<table:table-row><table:table-cell><text:p>{}</text:p></table:table-cell></table:table-row>"
    chart = f"<table:shapes><table:table>{row.format('c')}</table:table></table:shapes>"
    group = f"<table:table-row-group>{row.format('<text:p>x</text:p>')}</table:table-row-group>"
    assert read_sheets(flat(f"<table:table>{chart}{group}{row.format('y')}</table:table>")) == {
        "": {"A1": "x", "A2": "y"}
    }
