"""Tables as terminal text and HTML, and the report of a run in these forms.

Texts of models and environments are untrusted. In a terminal they are plain text without control characters or rich's
markup. In HTML (`page.html`) every text is escaped, and a page has neither scripts nor resources from elsewhere.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from rla.metrics.custom import brought
from rla.report.collect import RunSummary
from rla.report.curves import Panel, panels, svg
from rla.report.tables import Table, headline
from rla.text import printable

WIDTH = 150  # characters of a line in a file
MARGIN, GAP = 1, 3  # characters that rich adds: to a line, and to each cell
WIDEST = 24  # characters: a wider column may be folded


def terminal_width() -> int:
    """Characters in a line of the terminal; `WIDTH` if the output goes to a file or a program."""
    return shutil.get_terminal_size((WIDTH, 0)).columns


def as_text(title: str, tables: Sequence[Table], *, width: int = WIDTH) -> str:
    """Plain text, drawn by rich. A table with more columns than fit into `width` characters becomes several."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None)
    console.print(printable(title), highlight=False, markup=False)
    for table in chain.from_iterable(fitting(table, width) for table in tables):
        drawn = RichTable(title=Text(printable(table.title)), title_justify="left", box=box.SIMPLE)
        drawn.caption, drawn.caption_justify = Text(printable(table.note)) if table.note else None, "left"
        for index, column in enumerate(table.columns):
            justify: Literal["right", "left"] = "right" if len(table.columns) > 2 and index else "left"
            drawn.add_column(Text(printable(column)), justify=justify)
        for row in table.rows:
            drawn.add_row(*(Text(printable(cell), overflow="fold") for cell in row))
        console.print(drawn)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def fitting(table: Table, width: int) -> Iterator[Table]:
    """The table in parts of at most `width` characters: each has the first column and as many others as fit."""
    cells = zip(table.columns, *table.rows, strict=True)
    first, *others = [min(max(len(printable(cell)) for cell in column), WIDEST) + GAP for column in cells]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled part of a page. `body`: HTML whose texts are escaped, as by `safe`."""

    name: str
    title: str
    body: Sequence[str]


def safe(said: str) -> str:
    """A text as HTML."""
    return str(Markup.escape(printable(said).strip()))


def page_templates(*folders: Path) -> Environment:
    """Templates of these folders, which may extend `page.html`. Every text is escaped, and control characters become
    blanks.
    """

    def shown(value: Any) -> Any:
        return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    loader = FileSystemLoader([*folders, Path(__file__).parent])
    templates = Environment(loader=loader, autoescape=True, finalize=shown, undefined=StrictUndefined)
    templates.globals |= {"title": "", "headline": (), "sections": ()}
    return templates


@cache
def _page() -> Template:
    """`page.html`, whose macro draws tables."""
    return page_templates().get_template("page.html")


def report_page(title: str, headline: Sequence[str], sections: Sequence[Section]) -> str:
    """A page that needs no other file. Sections without a body are left out."""
    return _page().render(title=title, headline=headline, sections=[one for one in sections if one.body])


def curves_section(panels: Sequence[Panel]) -> Section:
    body = [f"<figure><figcaption>{safe(one.title)}</figcaption>{svg(one)}</figure>" for one in panels]
    return Section(name="curves", title="Curves", body=['<div class="curves">', *body, "</div>"] if body else [])


def tables_section(
    tables: Sequence[Table], *, name: str = "tables", title: str = "Tables", unfolded: bool = False
) -> Section:
    drawn = _page().module.table  # type: ignore[attr-defined]
    return Section(name=name, title=title, body=[str(drawn(table, unfolded)) for table in tables])


def text_of_run(summary: RunSummary, made: Sequence[Table], *, width: int) -> str:
    """The headline, all tables but listings, and the headline again."""
    head, made = headline(summary), [table for table in made if not table.listing]
    return "\n".join([*head, "", as_text(f"Run {summary.run}", made, width=width), *head])


def page_of_run(summary: RunSummary, made: Sequence[Table]) -> str:
    """`report.html`. A run that has just begun has few sections."""
    sections = [
        curves_section(panels(summary)),
        *(section for one in brought("sections") for section in one.sections(summary)),
        tables_section(made),
    ]
    return report_page(f"Run {summary.run}", headline(summary), sections)
