"""Cells of spreadsheets in flat OpenDocument files (`.fods`), parsed with the standard library.

A cell is the text that is stored for it; numbers are plain (`5`, `2.5`). The files come from the machine being judged,
so they are untrusted: XML with entity declarations is refused, and sizes are limited. A file whose cells exceed the
limits is not a table; empty cells may.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from xml.etree import ElementTree

MOST = 64 << 20  # bytes of a file
MOST_ROWS, MOST_COLUMNS, MOST_CELLS = 10_000, 256, 200_000  # cells: of all sheets together
ODF = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}%s"
ROW, GROUPS = (
    ODF % ("table", "table-row"),
    {ODF % ("table", f"table-{name}") for name in ("row-group", "rows", "header-rows")},
)
Sheet = dict[str, str]  # "B2": text
# For malformed XML, attributes that are not numbers, and cells nested too deeply.
FLAWS = (ElementTree.ParseError, LookupError, ValueError, ArithmeticError, AttributeError, TypeError, RuntimeError)


class TableFlaw(ValueError):
    """A file that cannot be read as a table."""


def read_sheets(data: bytes) -> dict[str, Sheet]:
    """Sheets by name, in order. Raises TableFlaw."""
    try:
        return _open_document(_parsed_xml(data))
    except FLAWS as error:
        raise TableFlaw(f"{type(error).__name__}: {error}") from None


def _parsed_xml(data: bytes) -> ElementTree.Element:
    if len(data) > MOST or b"<!DOCTYPE" in data or b"<!ENTITY" in data or b"\0" in data:  # UTF-16 would hide them
        raise TableFlaw("XML that is too large, or declares entities")
    return ElementTree.fromstring(data)


def _sheet_of(cells: Iterable[tuple[int, int, str]], most: int) -> Sheet:
    """Raises TableFlaw at the first cell beyond the limits, before requesting the next."""
    found: Sheet = {}
    for seen, (row, column, text) in enumerate(cells):
        if row >= MOST_ROWS or column >= MOST_COLUMNS or seen >= most:
            raise TableFlaw("too many rows, columns or cells")
        found[cell_place(row, column)] = text
    return found


def _open_document(root: ElementTree.Element) -> dict[str, Sheet]:
    found, left = dict[str, Sheet](), MOST_CELLS
    for book in root.iter(ODF % ("office", "spreadsheet")):
        for table in book.findall(ODF % ("table", "table")):
            sheet = _sheet_of(_odf_cells(table), left)
            left -= len(sheet)
            found[table.get(ODF % ("table", "name"), "")] = sheet
    return found


def _odf_cells(table: ElementTree.Element) -> Iterator[tuple[int, int, str]]:
    row = 0
    for line in _odf_rows(table):
        again = _odf_repeated(line, "number-rows-repeated", MOST_ROWS)
        cells = list(_odf_row(line))
        for number in range(row, row + again if cells else row):
            yield from ((number, column, text) for column, text in cells)
        row += again


def _odf_rows(table: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """The rows of the sheet itself: charts and cells may contain further tables."""
    waiting = list(reversed(table))
    while waiting:
        part = waiting.pop()
        if part.tag == ROW:
            yield part
        elif part.tag in GROUPS:
            waiting.extend(reversed(part))


def _odf_row(line: ElementTree.Element) -> Iterator[tuple[int, str]]:
    column = 0
    for cell in line:
        again = _odf_repeated(cell, "number-columns-repeated", MOST_COLUMNS)
        value = cell.get(ODF % ("office", "value"))
        texts = ["".join(part.itertext()) for part in cell.findall(ODF % ("text", "p"))]
        text = plain_number(value) if value is not None else "\n".join(texts)
        if text:
            if column + again > MOST_COLUMNS:
                raise TableFlaw("too many columns")
            yield from ((number, text) for number in range(column, column + again))
        column += again


def _odf_repeated(element: ElementTree.Element, name: str, most: int) -> int:
    """The repeat count, at most `most`."""
    again = int(element.get(ODF % ("table", name), "1"))
    if again < 1:
        raise TableFlaw(f"{name} of {again}")
    return min(again, most + 1)


def plain_number(text: str) -> str:
    """Without an empty fraction: `5.0` becomes 5."""
    try:
        return f"{float(text):.10g}" if len(text) < 40 else text
    except ValueError:
        return text


def cell_place(row: int, column: int) -> str:
    """`B2` for row 1 and column 1."""
    letters = chr(ord("A") + column % 26)
    return (chr(ord("A") + column // 26 - 1) if column >= 26 else "") + letters + str(row + 1)
