"""Cells of spreadsheets: CSV, OpenDocument (zipped or flat) and Excel's XML, by the standard library.

A cell is the text that is stored for it; numbers are plain (`5`, `2.5`). The files were made on the machine that is
judged, so they are data of others: XML with declarations of entities is refused, and sizes are bounded.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from xml.etree import ElementTree

MOST = 64 << 20  # bytes of a part that is unpacked
MOST_ROWS, MOST_COLUMNS = 10_000, 256
ODF = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}%s"
EXCEL = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
PLACE = re.compile(r"([A-Z]{1,2})([1-9][0-9]{0,4})")
Sheet = dict[str, str]  # "B2": text
FLAWS = (
    *(zipfile.BadZipFile, zlib.error, ElementTree.ParseError, csv.Error, EOFError),
    *(LookupError, ValueError, ArithmeticError, RuntimeError),  # RuntimeError: encrypted, or packed in another way
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
    if archive.getinfo(name).file_size > MOST:
        raise TableFlaw(f"{name} is too large")
    with archive.open(name) as file:
        return file.read(MOST)


def parsed_xml(data: bytes) -> ElementTree.Element:
    if len(data) > MOST or b"<!DOCTYPE" in data or b"<!ENTITY" in data or b"\0" in data:  # UTF-16 hides them
        raise TableFlaw("XML that is too large, or declares entities")
    return ElementTree.fromstring(data)


def rows_of_csv(text: str) -> Sheet:
    rows = csv.reader(io.StringIO(text))
    cells = ((row, column, cell) for row, line in enumerate(rows) for column, cell in enumerate(line))
    return {cell_place(row, column): cell for row, column, cell in cells if cell}


def open_document(root: ElementTree.Element) -> dict[str, Sheet]:
    found = {}
    for table in root.iter(ODF % ("table", "table")):
        name = table.get(ODF % ("table", "name"), "")
        found[name] = {cell_place(row, column): text for row, column, text in odf_cells(table)}
    return found


def odf_cells(table: ElementTree.Element) -> Iterator[tuple[int, int, str]]:
    row = 0
    for line in table.iter(ODF % ("table", "table-row")):
        again = min(MOST_ROWS, int(line.get(ODF % ("table", "number-rows-repeated"), "1")))
        cells = list(odf_row(line))
        for number in range(row, row + again if cells else row):
            yield from ((number, column, text) for column, text in cells)
        row += again


def odf_row(line: ElementTree.Element) -> Iterator[tuple[int, str]]:
    column = 0
    for cell in line:
        again = min(MOST_COLUMNS, int(cell.get(ODF % ("table", "number-columns-repeated"), "1")))
        value = cell.get(ODF % ("office", "value"))
        texts = ["".join(part.itertext()) for part in cell.iter(ODF % ("text", "p"))]
        text = plain_number(value) if value is not None else "\n".join(texts)
        if text:
            yield from ((number, text) for number in range(column, column + again))
        column += again


def excel(archive: zipfile.ZipFile) -> dict[str, Sheet]:
    strings = []
    if "xl/sharedStrings.xml" in archive.namelist():
        shared = parsed_xml(part_of(archive, "xl/sharedStrings.xml"))
        strings = ["".join(part.text or "" for part in each.iter(f"{EXCEL}t")) for each in shared.iter(f"{EXCEL}si")]
    book = parsed_xml(part_of(archive, "xl/workbook.xml"))
    names = [sheet.get("name", "") for sheet in book.iter(f"{EXCEL}sheet")]
    found = {}
    for number, name in enumerate(names, start=1):
        sheet = parsed_xml(part_of(archive, f"xl/worksheets/sheet{number}.xml"))
        cells = ((cell.get("r", ""), excel_text(cell, strings)) for cell in sheet.iter(f"{EXCEL}c"))
        found[name] = {place: text for place, text in cells if text}
    return found


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
