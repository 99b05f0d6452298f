"""Tables as terminal text (rich), Markdown and rows of HTML."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import chain
from typing import Literal

from rla.folding import printable
from rla.report.tables import Table

WIDTH = 150  # characters of a text that is not for a terminal
MARGIN, GAP = 1, 3  # characters that rich adds: to a line, and to each cell
LONG = 24  # characters: a longer word may be broken


def terminal_width() -> int:
    """Characters of a line of the terminal that reads the output; `WIDTH` where a file or a program does."""
    return shutil.get_terminal_size((WIDTH, 0)).columns


def as_text(title: str, tables: Sequence[Table], *, width: int = WIDTH) -> str:
    """Plain text with box lines, drawn by rich; what models wrote cannot speak to the terminal. A table with more
    columns than fit side by side becomes several.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None)
    console.print(printable(title), highlight=False, markup=False)
    for table in chain.from_iterable(fitting(table, width) for table in tables):
        drawn = RichTable(title=Text(printable(table.title)), title_justify="left", box=box.SIMPLE)
        drawn.caption, drawn.caption_justify = Text(printable(table.note)) if table.note else None, "left"
        for index, (column, chosen) in enumerate(zip(table.columns, column_widths(table, width), strict=True)):
            justify: Literal["right", "left"] = "right" if len(table.columns) > 2 and index else "left"
            drawn.add_column(Text(printable(column)), justify=justify, width=chosen)
        for row in table.rows:
            drawn.add_row(*(Text(printable(cell), overflow="fold") for cell in row))
        console.print(drawn)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def fitting(table: Table, width: int) -> Iterator[Table]:
    """The table in parts that are no wider than `width`: each has the first column and as many others as fit."""
    first, *others = [longest_word(table, index) + GAP for index in range(len(table.columns))]
    parts: list[list[int]] = [[0]]
    used = free = width - MARGIN - first
    for index, least in enumerate(others, start=1):
        if used < least and len(parts[-1]) > 1:
            parts.append([0])
            used = free
        parts[-1].append(index)
        used -= least
    for part in parts:
        yield replace(
            table,
            title=table.title if part is parts[0] else f"{table.title}, continued",
            columns=tuple(table.columns[index] for index in part),
            rows=tuple(tuple(row[index] for index in part) for row in table.rows),
            note=table.note if part is parts[-1] else "",
        )


def column_widths(table: Table, width: int) -> list[int]:
    """Of each column: what its longest word needs, then what is left, to those that have least of what they want."""
    columns = range(len(table.columns))
    widths = [longest_word(table, index) for index in columns]
    wanted = [
        max(len(printable(text)) for text in (table.columns[i], *(row[i] for row in table.rows))) for i in columns
    ]
    for _ in range(width - MARGIN - sum(one + GAP for one in widths)):
        lacking = max(columns, key=lambda index: wanted[index] / max(widths[index], 1))
        if wanted[lacking] > widths[lacking]:
            widths[lacking] += 1
    return widths


def longest_word(table: Table, index: int) -> int:
    """What a column needs so that no word of it is broken, unless one is very long. Figures of several words, such as
    `+3.1 [-1.2, +7.5]`, stay on one line, and so do the labels of rows.
    """
    cells = [printable(row[index]) for row in table.rows]
    figures = [cell for cell in cells if cell[:1] and cell[0] in "+-[0123456789" and cell.isprintable()]
    whole = [cell for cell in (cells if index == 0 else figures) if len(cell) <= LONG]
    words = [word for text in (printable(table.columns[index]), *cells) for word in text.split()]
    return min(max(map(len, (*words, *whole)), default=0), LONG)


def as_markdown(title: str, tables: Sequence[Table], *, head: Sequence[str] = ()) -> str:
    """`head`: lines that stand before the tables."""
    lines = [f"# {title}", *(line for one in head for line in ("", one))]
    for table in tables:
        lines += ["", f"## {table.title}", ""]
        lines += [markdown_row(table.columns), markdown_row(["---"] * len(table.columns))]
        lines += [markdown_row(row) for row in table.rows]
        lines += ["", table.note] if table.note else []
    return "\n".join(lines) + "\n"


def markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"


def html_row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(printable(cell))}</{tag}>" for cell in cells) + "</tr>"
