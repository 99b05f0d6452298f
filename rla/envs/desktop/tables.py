"""Cells of spreadsheets: CSV, OpenDocument (zipped or flat) and Excel's XML, by the standard library.

A cell is the text that is stored for it; numbers are plain (`5`, `2.5`). The files were made on the machine that is
judged, so they are data of others: XML with declarations of entities is refused, and sizes are bounded. A file whose
cells go beyond the bounds is no table; empty ones may.
"""

from __future__ import annotations

import csv
import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from xml.etree import ElementTree

MOST = 64 << 20  # bytes of a part that is unpacked
MOST_CSV = 16 << 20  # bytes
MOST_ROWS, MOST_COLUMNS, MOST_CELLS = 10_000, 256, 200_000  # cells: of all sheets together
ODF = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}%s"
EXCEL = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
ROW, GROUPS = (
    ODF % ("table", "table-row"),
    {ODF % ("table", f"table-{name}") for name in ("row-group", "rows", "header-rows")},
)
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # as office programs write; LZMA and BZ2 fail in ways of their own
PLACE = re.compile(r"([A-Z]{1,2})([1-9][0-9]{0,4})")
Sheet = dict[str, str]  # "B2": text
FLAWS = (
    *(zipfile.BadZipFile, zlib.error, ElementTree.ParseError, csv.Error, EOFError),
    *(LookupError, ValueError, ArithmeticError, RuntimeError),  # RuntimeError: encrypted, or packed in another way
    *(OSError, struct.error, AttributeError, TypeError),  # of the file, too: nothing else is read here
)


class TableFlaw(ValueError):
    """A file that is no table that can be read."""


def read_sheets(data: bytes) -> dict[str, Sheet]:
    """Sheets by name, in order; a CSV file has one, whose name is empty. Raises TableFlaw."""
    try:
        if data.startswith(b"PK"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                if "content.xml" in archive.namelist():
                    return open_document(parsed_xml(part_of(archive, "content.xml")))
                return excel(archive)
        if data.lstrip()[:1] == b"<":
            return open_document(parsed_xml(data))
        return {"": rows_of_csv(data.decode())}
    except FLAWS as error:
        raise TableFlaw(f"{type(error).__name__}: {error}") from None


def part_of(archive: zipfile.ZipFile, name: str) -> bytes:
    part = archive.getinfo(name)
    if part.file_size > MOST or part.compress_type not in PACKED:
        raise TableFlaw(f"{name} is too large, or packed in a way that is not read")
    with archive.open(name) as file:
        return file.read(MOST)


def parsed_xml(data: bytes) -> ElementTree.Element:
    if len(data) > MOST or b"<!DOCTYPE" in data or b"<!ENTITY" in data or b"\0" in data:  # UTF-16 hides them
        raise TableFlaw("XML that is too large, or declares entities")
    return ElementTree.fromstring(data)


def rows_of_csv(text: str) -> Sheet:
    if len(text) > MOST_CSV:
        raise TableFlaw("too long")
    rows = csv.reader(io.StringIO(text))
    cells = ((row, column, cell) for row, line in enumerate(rows) for column, cell in enumerate(line) if cell)
    return sheet_of(cells, MOST_CELLS)


def sheet_of(cells: Iterable[tuple[int, int, str]], most: int) -> Sheet:
    """Raises TableFlaw at the first cell beyond the bounds, before the next is asked for."""
    found: Sheet = {}
    for seen, (row, column, text) in enumerate(cells):
        if row >= MOST_ROWS or column >= MOST_COLUMNS or seen >= most:
            raise TableFlaw("too many rows, columns or cells")
        found[cell_place(row, column)] = text
    return found


def open_document(root: ElementTree.Element) -> dict[str, Sheet]:
    found, left = dict[str, Sheet](), MOST_CELLS
    for book in root.iter(ODF % ("office", "spreadsheet")):
        for table in book.findall(ODF % ("table", "table")):
            sheet = sheet_of(odf_cells(table), left)
            left -= len(sheet)
            found[table.get(ODF % ("table", "name"), "")] = sheet
    return found


def odf_cells(table: ElementTree.Element) -> Iterator[tuple[int, int, str]]:
    row = 0
    for line in odf_rows(table):
        again = odf_repeated(line, "number-rows-repeated", MOST_ROWS)
        cells = list(odf_row(line))
        for number in range(row, row + again if cells else row):
            yield from ((number, column, text) for column, text in cells)
        row += again


def odf_rows(table: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Those of the sheet itself: charts and cells may have tables within."""
    waiting = list(reversed(table))
    while waiting:
        part = waiting.pop()
        if part.tag == ROW:
            yield part
        elif part.tag in GROUPS:
            waiting.extend(reversed(part))


def odf_row(line: ElementTree.Element) -> Iterator[tuple[int, str]]:
    column = 0
    for cell in line:
        again = odf_repeated(cell, "number-columns-repeated", MOST_COLUMNS)
        value = cell.get(ODF % ("office", "value"))
        texts = ["".join(part.itertext()) for part in cell.findall(ODF % ("text", "p"))]
        text = plain_number(value) if value is not None else "\n".join(texts)
        if text:
            if column + again > MOST_COLUMNS:
                raise TableFlaw("too many columns")
            yield from ((number, text) for number in range(column, column + again))
        column += again


def odf_repeated(element: ElementTree.Element, name: str, most: int) -> int:
    """How often it stands there, `most` for more."""
    again = int(element.get(ODF % ("table", name), "1"))
    if again < 1:
        raise TableFlaw(f"{name} of {again}")
    return min(again, most + 1)


def excel(archive: zipfile.ZipFile) -> dict[str, Sheet]:
    strings = []
    if "xl/sharedStrings.xml" in archive.namelist():
        shared = parsed_xml(part_of(archive, "xl/sharedStrings.xml"))
        strings = ["".join(part.text or "" for part in each.iter(f"{EXCEL}t")) for each in shared.findall(f"{EXCEL}si")]
    book = parsed_xml(part_of(archive, "xl/workbook.xml"))
    names = [sheet.get("name", "") for sheet in book.iter(f"{EXCEL}sheet")]
    parts = [f"xl/worksheets/sheet{number}.xml" for number in range(1, len(names) + 1)]
    if sum(archive.getinfo(part).file_size for part in parts) > MOST:
        raise TableFlaw("its sheets are too large")
    found, left = dict[str, Sheet](), MOST_CELLS
    for name, part in zip(names, parts, strict=True):
        found[name] = sheet_of(excel_cells(parsed_xml(part_of(archive, part)), strings), left)
        left -= len(found[name])
    return found


def excel_cells(sheet: ElementTree.Element, strings: list[str]) -> Iterator[tuple[int, int, str]]:
    for cell in sheet.iterfind(f"{EXCEL}sheetData/{EXCEL}row/{EXCEL}c"):
        text = excel_text(cell, strings)
        if text:
            yield *numbers_of_place(cell.get("r", "")), text


def excel_text(cell: ElementTree.Element, strings: list[str]) -> str:
    value = cell.findtext(f"{EXCEL}v", "")
    if cell.get("t") == "s":
        return strings[int(value)]
    if cell.get("t") == "inlineStr":
        return "".join(part.text or "" for part in cell.iter(f"{EXCEL}t"))
    return value if cell.get("t") in ("str", "b", "e") else plain_number(value)


def plain_number(text: str) -> str:
    """Without a fraction of nothing: `5.0` is 5."""
    try:
        return f"{float(text):.10g}" if len(text) < 40 else text
    except ValueError:
        return text


def cell_place(row: int, column: int) -> str:
    """`B2` for row 1 and column 1."""
    letters = chr(ord("A") + column % 26)
    return (chr(ord("A") + column // 26 - 1) if column >= 26 else "") + letters + str(row + 1)


def numbers_of_place(place: str) -> tuple[int, int]:
    """Row and column, from 0. Raises TableFlaw where it is none, or far beyond the bounds."""
    found = PLACE.fullmatch(place)
    if found is None:
        raise TableFlaw(f"a cell at {place[:20]!r}")
    letters, row = found.groups()
    column = 0
    for letter in letters:
        column = column * 26 + ord(letter) - ord("A") + 1
    return int(row) - 1, column - 1
