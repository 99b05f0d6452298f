"""Tables as terminal text (rich), Markdown and rows of HTML.

`report.html`: one page that stands alone, which people show each other. Without scripts or outside resources.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import chain
from typing import Literal

from rla.folding import printable
from rla.report.series import Panel, svg
from rla.report.tables import GainLine, Table
from rla.showing.drawing import STYLE as EXCERPTS
from rla.showing.drawing import excerpt_html, safe
from rla.showing.episodes import Excerpt

WIDTH = 150  # characters of a text that is not for a terminal
MARGIN, GAP = 1, 3  # characters that rich adds: to a line, and to each cell
LONG = 24  # characters: a longer word may be broken


def terminal_width() -> int:
    """Characters of a line of the terminal that reads the output; `WIDTH` if a file or a program does."""
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


STYLE = """
body { max-width: 75rem }
.headline { font-size: 1.25rem; border-left: 4px solid #999; padding: .2rem .9rem }
.better { border-color: #3a7 } .worse { border-color: #c43 }
.warning { background: #fff6d8; border-left: 4px solid #d90; padding: .2rem .9rem }
nav a { margin-right: 1rem }
.curves { display: flex; flex-wrap: wrap; gap: 1rem }
figure { margin: 0; flex: 1 1 22rem; max-width: 36rem } figure svg { width: 100%; height: auto }
figcaption { font-weight: 600; font-size: .95rem }
table { border-collapse: collapse; margin: .5rem 0; font-size: .9rem }
th, td { border-bottom: 1px solid #ddd; padding: .2rem .7rem; text-align: right; overflow-wrap: anywhere }
th:first-child, td:first-child { text-align: left }
.scroll { overflow-x: auto }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 1rem }
del { background: #fbe0de; text-decoration: line-through } ins { background: #dcf5e0; text-decoration: none }
details { margin: .6rem 0 } summary { cursor: pointer; font-weight: 600 }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled part of the page; `body` is HTML whose texts are escaped, as by `rla.showing.drawing.safe`."""

    name: str
    title: str
    body: Sequence[str]


def report_page(title: str, headline: Sequence[str], sections: Sequence[Section]) -> str:
    """The page. Sections without a body are left out."""
    shown = [section for section in sections if section.body]
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{safe(title)}</title>'
    parts = [f"{head}<style>{EXCERPTS}{STYLE}</style>", f"<h1>{safe(title)}</h1>"]
    parts += [f'<p class="{headline_class(line)}">{safe(line)}</p>' for line in headline]
    parts.append("<nav>" + "".join(f'<a href="#{one.name}">{safe(one.title)}</a>' for one in shown) + "</nav>")
    for section in shown:
        parts += [f'<section id="{section.name}"><h2>{safe(section.title)}</h2>', *section.body, "</section>"]
    return "\n".join(parts) + "</html>\n"


def headline_class(line: str) -> str:
    """Only a change whose interval is clear of zero is shown as one for better or for worse."""
    if not isinstance(line, GainLine) or line.gain.low <= 0 <= line.gain.high:
        return "headline"
    return "headline better" if line.gain.low > 0 else "headline worse"


def curves_section(panels: Sequence[Panel]) -> Section:
    body = [f"<figure><figcaption>{safe(one.title)}</figcaption>{svg(one)}</figure>" for one in panels]
    return Section(name="curves", title="Curves", body=['<div class="curves">', *body, "</div>"] if body else [])


def excerpts_section(name: str, title: str, excerpts: Sequence[Excerpt]) -> Section:
    return Section(name=name, title=title, body=list(map(excerpt_html, excerpts)))


def tables_section(tables: Sequence[Table]) -> Section:
    """Every table, folded."""
    return Section(name="tables", title="Tables", body=[part for table in tables for part in table_html(table)])


def table_html(table: Table, *, unfolded: bool = False) -> Iterator[str]:
    yield f'<details{" open" if unfolded else ""}><summary>{safe(table.title)}</summary><div class="scroll"><table>'
    yield html_row(table.columns, "th")
    yield from (html_row(row, "td") for row in table.rows)
    yield "</table></div>"
    yield f"<p>{safe(table.note)}</p></details>" if table.note else "</details>"
