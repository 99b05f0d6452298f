"""`report.html`: one page that stands alone, which people show each other. Without scripts or outside resources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from rla.folding import printable
from rla.report.changes import Change, Mark
from rla.report.curves import Panel, svg
from rla.report.render import html_row
from rla.report.tables import GainLine, Table, percent
from rla.showing.page import STYLE as EXCERPTS
from rla.showing.page import excerpt_html, safe
from rla.showing.records import Excerpt

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
MARKS: dict[Mark, str] = {"gone": "del", "new": "ins"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled part of the page; `body` is HTML whose texts are escaped."""

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


def changes_section(changes: Sequence[Change], *, most: int) -> Section:
    """Parent and child of accepted tasks side by side, the latest `most`."""
    body = [part for change in changes[:most] for part in change_html(change)]
    if len(changes) > most:
        body.append(f"<p>{len(changes) - most} earlier ones are shown by <code>rla lineage</code>.</p>")
    return Section(name="tasks", title="Accepted tasks", body=body)


def change_html(change: Change) -> Iterator[str]:
    yield f"<article><h3>Iteration {change.iteration}: {safe(change.direction)}</h3>"
    yield '<div class="sides">'
    sides = [("parent", change.parent_id, change.parent, change.parent_accuracy)]
    sides.append(("child", change.child_id, change.child, change.child_accuracy))
    for who, name, pieces, accuracy in sides:
        yield f"<div><b>{who} {safe(name)}</b>, won {percent(accuracy)}"
        yield f'<div class="text">{"".join(piece(*one) for one in pieces)}</div></div>'
    yield "</div>"
    for label, said in (("edit", change.edit), ("critique", change.critique)):
        if said:
            yield f'<div class="text seen"><b>{label}</b> {safe(said)}</div>'
    yield "</article>"


def piece(mark: Mark, said: str) -> str:
    """A piece of an instruction. Blanks between words stay."""
    shown = escape(printable(said))
    return f"<{MARKS[mark]}>{shown}</{MARKS[mark]}>" if mark in MARKS else shown


def tables_section(tables: Sequence[Table]) -> Section:
    """Every table, folded."""
    return Section(name="tables", title="Tables", body=[part for table in tables for part in table_html(table)])


def table_html(table: Table, *, unfolded: bool = False) -> Iterator[str]:
    yield f'<details{" open" if unfolded else ""}><summary>{safe(table.title)}</summary><div class="scroll"><table>'
    yield html_row(table.columns, "th")
    yield from (html_row(row, "td") for row in table.rows)
    yield "</table></div>"
    yield f"<p>{safe(table.note)}</p></details>" if table.note else "</details>"
