"""Metrics and tables against values worked out by hand."""

from __future__ import annotations

import io
import zipfile

import pytest

from rla.envs.desktop.measuring import metric_score
from rla.envs.desktop.tables import TableFlaw, cell_place, numbers_of_place, read_sheets

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
        ("check_json", b"[" * 100_000, {"expect": []}, {}, 0.0),
        ("check_json", b"1" * 50_000, {"expect": []}, {}, 0.0),
        ("compare_text_file", b"a\r\nb", b"a\nb", {}, 1.0),
        ("compare_text_file", b"\xff", b"\xfe", {}, 0.0),
        ("literal_match", "1", 1, {}, 1.0),
        ("literal_match", [1, "a"], ["1", "A"], {"type": "list", "ignore_case": True}, 1.0),
        ("compare_csv", b"a,1\r\nb,2", b"a,1\nb,2\n", {}, 1.0),
        ("compare_csv", b"a,1 \n", b"a,1\n", {}, 0.0),
        ("compare_csv", b" a,1 \n", b"a,1\n", {"strict": False}, 1.0),
        ("compare_csv", b'"a",1\n', b"a,1\n", {"strict": False}, 0.0),
        ("compare_csv", b"a\n\n", b"a\n", {"strict": False}, 0.0),
        ("compare_csv", b"A\n", b"a\n", {"ignore_case": True}, 1.0),
        ("compare_csv", b"\xe9\n", [None, "\u00e9\n".encode()], {}, 1.0),
        ("check_include_exclude", ["a b"], {"include": ["a"]}, {}, 0.0),
        ("check_cells", b"\xff\xfe" + FLAT.encode("utf-16-le"), {"cells": {}}, {}, 0.0),
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
    assert [numbers_of_place(place) for place in ("Z1", "AA10", "BA1")] == [(0, 25), (9, 26), (0, 52)]


def flat(tables: str) -> bytes:
    return (
        FLAT[: FLAT.index("<table:table ")] + tables + "</office:spreadsheet></office:body></office:document>"
    ).encode()


def odf_table(rows: int, columns: int, text: str = "a") -> str:
    cell = f'<table:table-cell table:number-columns-repeated="{columns}"><text:p>{text}</text:p></table:table-cell>'
    return f'<table:table><table:table-row table:number-rows-repeated="{rows}">{cell}</table:table-row></table:table>'


def book_of_excel(*places: str) -> bytes:
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("xl/workbook.xml", f'<workbook {main}><sheets><sheet name="S"/></sheets></workbook>')
        cells = "".join(f'<c r="{place}"><v>1</v></c>' for place in places)
        archive.writestr(
            "xl/worksheets/sheet1.xml", f"<worksheet {main}><sheetData><row>{cells}</row></sheetData></worksheet>"
        )
    return sink.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(flat(odf_table(10_001, 1)), id="rows"),
        pytest.param(flat(odf_table(1, 257)), id="columns"),
        pytest.param(flat(odf_table(10_000, 21)), id="cells"),
        pytest.param(flat(odf_table(10_000, 11) * 2), id="cells of two tables"),
        pytest.param(flat(odf_table(-1, 1)), id="rows below zero"),
        pytest.param(b"\n" * 10_000 + b"a", id="lines"),
        pytest.param(b"," * 256 + b"a", id="commas"),
        pytest.param((b"a," * 200 + b"\n") * 1_001, id="lines of commas"),
        # A book holds the time at which it was packed: as a name it would differ from one test process to another.
        pytest.param(book_of_excel("A10001"), id="row of Excel"),
        pytest.param(book_of_excel("IW1"), id="column of Excel"),
        pytest.param(book_of_excel("AAA1"), id="column of three letters"),
    ],
)
def test_a_sheet_that_is_too_large_is_no_table(data: bytes) -> None:
    with pytest.raises(TableFlaw):
        read_sheets(data)


def test_cells_of_every_kind_of_file_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    files = (flat(odf_table(2, 2)), book_of_excel("A1", "B1", "A2", "B2"), b"a,b\nc,d\n")
    monkeypatch.setattr("rla.envs.desktop.tables.MOST_CELLS", 4)
    assert [len(next(iter(read_sheets(file).values()))) for file in files] == [4, 4, 4]
    monkeypatch.setattr("rla.envs.desktop.tables.MOST_CELLS", 3)
    for file in files:
        with pytest.raises(TableFlaw):
            read_sheets(file)


def test_a_sheet_may_be_as_large_as_the_bounds_say() -> None:
    assert len(read_sheets(flat(odf_table(10_000, 20)))[""]) == 200_000
    assert read_sheets(book_of_excel("IV10000")) == {"S": {"IV10000": "1"}}
    assert read_sheets(b"," * 255 + b"a,\n" + b",\n" * 10_000) == {"": {"IV1": "a"}}


def test_texts_within_texts_and_tables_within_tables_count_once() -> None:
    row = "<table:table-row><table:table-cell><text:p>{}</text:p></table:table-cell></table:table-row>"
    chart = f"<table:shapes><table:table>{row.format('c')}</table:table></table:shapes>"
    group = f"<table:table-row-group>{row.format('<text:p>x</text:p>')}</table:table-row-group>"
    assert read_sheets(flat(f"<table:table>{chart}{group}{row.format('y')}</table:table>")) == {
        "": {"A1": "x", "A2": "y"}
    }


SETTINGS = b'{"a": {"b": [1, {"c": "x"}]}, "n": 2.5, "t": true, "z": null, "s": "\'u,v\'"}'


@pytest.mark.parametrize(
    ("side", "key", "method", "ref", "wanted"),
    [
        ("expect", ["a", "b", 1, "c"], "eq", "x", 1.0),
        ("expect", [], "ne", None, 1.0),
        ("expect", ["gone"], "ne", 1, 0.0),
        ("expect", ["n", "deeper"], "eq", 1, 0.0),
        ("unexpect", ["gone"], "eq", 1, 1.0),
        ("unexpect", ["gone"], "ne", 1, 0.0),
        ("unexpect", ["gone"], "eq", None, 0.0),
        ("unexpect", ["z"], "lt", 1, 1.0),
        ("expect", ["z"], "lt", 1, 0.0),
        ("expect", ["n"], "ge", 2.5, 1.0),
        ("expect", ["t"], "eq", 1, 1.0),
        ("expect", ["n"], "approx:0.5", 3, 1.0),
        ("expect", ["n"], "approx:0.4", 3, 0.0),
        ("expect", ["s"], "approx:0.4", 3, 0.0),
        ("expect", ["n"], "range.te", [2.5, 3], 0.0),
        ("expect", ["n"], "range.et", [2.5, 3], 1.0),
        ("expect", ["s"], "str_list_eq", ["u", "v"], 1.0),
        ("expect", ["s"], "str_list_eq", ["v", "u"], 0.0),
        ("expect", ["s"], "str_set_eq", ["v", "u"], 1.0),
    ],
)
def test_rules_of_settings_hold_as_osworld_s_do(
    side: str, key: list[object], method: str, ref: object, wanted: float
) -> None:
    rules = {side: [{"key": key, "method": method, "ref": ref}]}
    assert score("check_json", SETTINGS, rules) == wanted


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        (b"a:\n  b: 1\n", 1.0),
        (b"a: {b: 2}", 0.0),
        (b"x: &x {b: 1}\na: *x\n", 0.0),
        (b"a: !!python/object/apply:os.getpid []", 0.0),
        (b"a: {b: 1}" + b" " * (1 << 16), 0.0),
        (b"[" * 5000, 0.0),
        (b"a: !!timestamp x", 0.0),
        (b"a: !!bool x", 0.0),
        (b"a: !!int ''", 0.0),
        (b"!!omap [[]]", 0.0),
    ],
)
def test_yaml_is_read_as_data(file: bytes, wanted: float) -> None:
    rules = {"expect": [{"key": ["a", "b"], "method": "eq", "ref": 1}]}
    assert score("check_json", file, rules, is_yaml=True) == wanted


def test_a_book_that_cannot_be_unpacked_is_no_table() -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("content.xml", FLAT)
    broken = bytearray(sink.getvalue())
    broken[60:80] = bytes(20)
    with pytest.raises(TableFlaw):
        read_sheets(bytes(broken))


@pytest.mark.parametrize("packed", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
@pytest.mark.parametrize("at", range(45, 75, 3))
def test_a_book_that_is_packed_as_no_office_does_is_no_table(packed: int, at: int) -> None:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", packed) as archive:
        archive.writestr("content.xml", FLAT)
    broken = bytearray(sink.getvalue())
    broken[at] ^= 0xFF
    with pytest.raises(TableFlaw):
        read_sheets(bytes(broken))
