"""Metrics and tables against values worked out by hand."""

from __future__ import annotations

import io
import zipfile

import pytest

from rla.envs.desktop.measuring import metric_score
from rla.envs.desktop.tables import TableFlaw, cell_place, read_sheets

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
        ("match_in_list", "b", {"expected": ["a", "b"]}, {}, 1.0),
        ("is_in_list", ["a"], {"expected": "b"}, {}, 0.0),
        ("literal_match", "Ada", "ada", {"ignore_case": True}, 1.0),
        ("literal_match", ["x"], ["x", "y"], {"type": "list"}, 0.0),
        ("compare_text_file", b"a  b\nc", b"a b c", {"ignore_blanks": True}, 1.0),
        ("compare_text_file", b"A", b"a", {}, 0.0),
        ("compare_csv", b"a,1\n", [b"b,1\n", b"a,1\n"], {}, 1.0),
        ("check_json", b'{"a": {"b": 1}}', {"expect": [{"key": ["a", "b"], "method": "eq", "ref": 1}]}, {}, 1.0),
        ("check_json", b"no json", {"expect": []}, {}, 0.0),
        ("check_lines", b"a \nb\n\n", {"lines": ["a", "b"]}, {}, 1.0),
        ("check_lines", b"a\nc", {"lines": ["a", "b"], "share": True}, {}, 0.5),
        ("check_cells", b"a,1\nb,2\n", {"cells": {"A2": "b", "B2": "2", "C1": ""}}, {}, 1.0),
        ("check_cells", b"<broken", {"cells": {}}, {}, 0.0),
        ("exact_match", None, {"expected": None}, {}, 0.0),
    ],
)
def test_a_metric(name: str, result: object, expected: object, options: dict[str, object], wanted: float) -> None:
    assert score(name, result, expected, **options) == wanted


def test_cells_of_flat_and_zipped_documents() -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("content.xml", FLAT)
    for data in (FLAT.encode(), sink.getvalue()):
        assert read_sheets(data) == {"One": {"C1": "2.5", "A2": "a", "A3": "a"}}


def test_cells_of_excel() -> None:
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("xl/workbook.xml", f'<workbook {main}><sheets><sheet name="S"/></sheets></workbook>')
        archive.writestr("xl/sharedStrings.xml", f"<sst {main}><si><t>hello</t></si></sst>")
        cells = '<c r="A1" t="s"><v>0</v></c><c r="B1"><v>5.0</v></c>'
        archive.writestr(
            "xl/worksheets/sheet1.xml", f"<worksheet {main}><sheetData><row>{cells}</row></sheetData></worksheet>"
        )
    assert read_sheets(sink.getvalue()) == {"S": {"A1": "hello", "B1": "5"}}


def test_documents_that_declare_entities_are_no_tables() -> None:
    bomb = b'<!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>'
    with pytest.raises(TableFlaw):
        read_sheets(bomb)


def test_places_beyond_the_last_letter() -> None:
    assert [cell_place(0, 25), cell_place(9, 26), cell_place(0, 52)] == ["Z1", "AA10", "BA1"]
