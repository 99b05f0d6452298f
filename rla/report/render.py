"""Tables and episodes as terminal text, Markdown and HTML, and the report of a run in these forms.

Texts of models and environments are untrusted. In a terminal they are plain text without control characters or rich's
markup. In HTML every text is escaped, and a page has neither scripts nor resources from elsewhere.
"""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import chain
from typing import IO, Literal, Protocol, runtime_checkable

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel as Frame
from rich.table import Table as RichTable
from rich.text import Text

from rla.config import Config
from rla.envs.protocols import Labels
from rla.envs.registry import environment
from rla.metrics.custom import brought
from rla.report.collect import RunSummary
from rla.report.curves import Panel, panels, svg
from rla.report.episodes import Choice, Excerpt, ShownStep, chosen_excerpts, played_in, played_iterations
from rla.report.tables import GainLine, Table, headline
from rla.store.layout import artifact
from rla.store.manifest import is_complete
from rla.text import printable

WIDTH = 150  # characters of a line in a file
MARGIN, GAP = 1, 3  # characters that rich adds: to a line, and to each cell
LONG = 24  # characters: a longer word may be broken


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
        for index, (column, chosen) in enumerate(zip(table.columns, column_widths(table, width), strict=True)):
            justify: Literal["right", "left"] = "right" if len(table.columns) > 2 and index else "left"
            drawn.add_column(Text(printable(column)), justify=justify, width=chosen)
        for row in table.rows:
            drawn.add_row(*(Text(printable(cell), overflow="fold") for cell in row))
        console.print(drawn)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def fitting(table: Table, width: int) -> Iterator[Table]:
    """The table in parts of at most `width` characters: each has the first column and as many others as fit."""
    first, *others = [_longest_word(table, index) + GAP for index in range(len(table.columns))]
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
    """The width of each column: enough for its longest word; columns that lack most get the remaining space."""
    columns = range(len(table.columns))
    widths = [_longest_word(table, index) for index in columns]
    wanted = [
        max(len(printable(text)) for text in (table.columns[i], *(row[i] for row in table.rows))) for i in columns
    ]
    for _ in range(width - MARGIN - sum(one + GAP for one in widths)):
        lacking = max(columns, key=lambda index: wanted[index] / max(widths[index], 1))
        if wanted[lacking] > widths[lacking]:
            widths[lacking] += 1
    return widths


def _longest_word(table: Table, index: int) -> int:
    """The width at which no word of a column is broken, unless it is very long. Labels of rows, and figures of several
    words such as `+3.1 [-1.2, +7.5]`, stay on one line.
    """
    cells = [printable(row[index]) for row in table.rows]
    figures = [cell for cell in cells if cell[:1] and cell[0] in "+-[0123456789" and cell.isprintable()]
    whole = [cell for cell in (cells if index == 0 else figures) if len(cell) <= LONG]
    words = [word for text in (printable(table.columns[index]), *cells) for word in text.split()]
    return min(max(map(len, (*words, *whole)), default=0), LONG)


def as_markdown(title: str, tables: Sequence[Table], *, head: Sequence[str] = ()) -> str:
    """`head`: lines before the tables."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"

    lines = [f"# {title}", *(text for one in head for text in ("", one))]
    for table in tables:
        lines += ["", f"## {table.title}", "", line(table.columns), line(["---"] * len(table.columns))]
        lines += [line(row) for row in table.rows]
        lines += ["", table.note] if table.note else []
    return "\n".join(lines) + "\n"


LONGEST = 1200  # characters of a text in a terminal; the page shows all of it
VOTES = {1: ("+", "good"), -1: ("-", "bad"), None: ("?", "open")}  # score -> sign, class
COLOURS = {"": "cyan", "good": "green", "bad": "red", "open": "yellow"}  # of classes, in a terminal
KITTY = 4096  # bytes of one chunk of a picture in kitty's graphics protocol


def draw(excerpts: Sequence[Excerpt], stream: IO[str], *, width: int | None = None, pictures: bool = False) -> None:
    """Write the excerpts to a terminal or a file. `pictures`: the terminal draws kitty's graphics."""
    console = Console(file=stream, width=width, highlight=False)
    for excerpt in excerpts:
        lines = Group(*_excerpt_lines(excerpt))
        console.print(Frame(lines, title=_plain(excerpt.episode.title), title_align="left", border_style="dim"))
        images = [image for step in excerpt.shown for image in step.images]
        images += excerpt.episode.last_images if excerpt.to_the_end else ()
        for image in images if pictures else ():
            stream.write("".join(kitty(image)) + "\n")


def _excerpt_lines(excerpt: Excerpt) -> Iterator[RenderableType]:
    episode = excerpt.episode
    if excerpt.why:
        yield _plain(excerpt.why, "bold yellow")
    yield _plain(episode.instruction, "bold")
    last = -1
    for step in excerpt.shown:
        if step.index > last + 1:
            yield Text("...", style="dim")
        yield from _step_lines(step)
        last = step.index
    if not excerpt.to_the_end:
        yield Text("...", style="dim")
        return
    yield _indented(_cut(episode.verdict) + _images_note(episode.last_images), 4, "dim")
    if episode.error:
        yield _plain(f"the environment broke: {_cut(episode.error)}", "red")
    earned = "" if episode.reward is None else f", reward {episode.reward:.3g}"
    yield _plain(f"{episode.ended}{earned}", "green" if episode.won else "red")


def _step_lines(step: ShownStep) -> Iterator[RenderableType]:
    """Observation, action, rewards, and each vote with its reason."""
    yield _indented(_cut(step.observation) + _images_note(step.images), 4, "dim")
    facts = [(f"  {said}", COLOURS[kind]) for said, kind in _facts(step)]
    yield Text.assemble((f"{step.index:3} ", "cyan"), "> ", (printable(step.action).strip(), "bold"), "  ", *facts)
    if not step.valid:
        yield _indented(f"no action could be read in: {_cut(step.reply)}", 6, "red")
    elif step.reply.strip() != step.action.strip():
        yield _indented(_cut(step.reply), 6)
    for vote in step.votes:
        sign, kind = VOTES[vote.score]
        paid = "" if vote.reward is None else f" (paid {vote.reward:+.2f})"
        text = printable(_cut(vote.text)).strip()
        yield Padding(Text.assemble((f"vote {sign}{paid} ", COLOURS[kind]), text), (0, 0, 0, 6))


def _facts(step: ShownStep) -> Iterator[tuple[str, str]]:
    """(text, class) of rewards and label."""
    if step.reward is not None:
        yield f"R {step.reward:+.2f}", ""
    if step.advantage is not None:
        yield f"advantage {step.advantage:+.2f}", ""
    if step.label is not None:
        yield ("it helped", "good") if step.label > 0 else ("it did not help", "bad")


def _plain(text: str, style: str = "") -> Text:
    return Text(printable(text).strip(), style=style)


def _indented(text: str, width: int, style: str = "") -> Padding:
    return Padding(_plain(text, style), (0, 0, 0, width))


def _images_note(images: Sequence[bytes]) -> str:
    return f" [{len(images)} images]" if images else ""


def _cut(text: str) -> str:
    """The beginning and the end of a long text."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def kitty(png: bytes) -> Iterable[str]:
    """A PNG file in kitty's graphics protocol: chunks of base64, all but the last with m=1."""
    data = base64.standard_b64encode(png).decode()
    chunks = [data[start : start + KITTY] for start in range(0, len(data), KITTY)] or [""]
    for number, chunk in enumerate(chunks):
        head = "a=T,f=100," if number == 0 else ""
        yield f"\x1b_G{head}m={int(number + 1 < len(chunks))};{chunk}\x1b\\"


EXCERPT_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222 }
article { border: 1px solid #ddd; border-radius: 6px; margin: 1.2rem 0; padding: .4rem 1rem }
article > h3 { font-size: 1rem; margin: .4rem 0 }
.why { background: #fff6d8; padding: .2rem .5rem; border-radius: 4px; white-space: pre-line }
.step { border-top: 1px solid #eee; padding: .4rem 0 }
.text { white-space: pre-wrap; overflow-wrap: anywhere; margin: .2rem 0 }
.seen { color: #666; max-height: 14rem; overflow-y: auto }
.action { font-weight: 600 }
.fact { border-radius: 4px; padding: 0 .4rem; margin-left: .5rem; background: #eef; font-weight: 400 }
.good { background: #dcf5e0 } .bad { background: #fbe0de } .open { background: #fff6d8 }
img { max-width: 100%; border: 1px solid #ddd }
"""
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
    """A titled part of a page. `body`: HTML whose texts are escaped, as by `safe`."""

    name: str
    title: str
    body: Sequence[str]


@runtime_checkable
class Illustrates(Protocol):
    """A member of classes that packages register (`rla.metrics.custom`)."""

    def sections(self, summary: RunSummary) -> Sequence[Section]:
        """Sections of `report.html`. Sections without a body are left out."""
        ...


def safe(said: str) -> str:
    """A text as HTML."""
    return escape(printable(said).strip())


def excerpts_page(title: str, excerpts: Sequence[Excerpt]) -> str:
    """A page that needs no other file."""
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{safe(title)}</title>'
    body = [f"<style>{EXCERPT_STYLE}</style>", f"<h1>{safe(title)}</h1>", *map(_excerpt_html, excerpts)]
    return head + "\n".join(body) + "</html>\n"


def _excerpt_html(excerpt: Excerpt) -> str:
    """One article. EXCERPT_STYLE has its classes."""
    episode = excerpt.episode
    parts = ["<article>", f"<h3>{safe(episode.title)}</h3>"]
    parts += [f'<p class="why">{safe(excerpt.why)}</p>'] if excerpt.why else []
    parts.append(_block(episode.instruction, "action"))
    parts += [part for step in excerpt.shown for part in _step_html(step)]
    if excerpt.to_the_end:
        parts += [_block(episode.verdict, "seen"), *map(_picture, episode.last_images)]
    if episode.error:
        parts.append(_block(f"the environment broke: {episode.error}", "bad"))
    return "\n".join([*parts, "</article>"])


def _step_html(step: ShownStep) -> Iterator[str]:
    facts = [*([] if step.valid else [("no action could be read", "bad")]), *_facts(step)]
    tags = "".join(f'<span class="fact {kind}">{safe(said)}</span>' for said, kind in facts)
    yield '<div class="step">'
    yield _block(step.observation, "seen")
    yield from map(_picture, step.images)
    yield f'<div class="text action">{step.index} &gt; {safe(step.action)}{tags}</div>'
    if not step.valid or step.reply.strip() != step.action.strip():
        yield _block(step.reply, "" if step.valid else "bad")
    for vote in step.votes:
        sign, kind = VOTES[vote.score]
        paid = "" if vote.reward is None else f" paid {vote.reward:+.2f}"
        yield f'<div class="text"><span class="fact {kind}">vote {sign}{paid}</span> {safe(vote.text)}</div>'
    yield "</div>"


def _block(said: str, kind: str) -> str:
    return f'<div class="text {kind}">{safe(said)}</div>'


def _picture(png: bytes) -> str:
    return f'<img alt="screenshot" src="data:image/png;base64,{base64.standard_b64encode(png).decode()}">'


def report_page(title: str, headline: Sequence[str], sections: Sequence[Section]) -> str:
    """A page that needs no other file. Sections without a body are left out."""
    shown = [section for section in sections if section.body]
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{safe(title)}</title>'
    parts = [f"{head}<style>{EXCERPT_STYLE}{STYLE}</style>", f"<h1>{safe(title)}</h1>"]
    for line in headline:
        kind = "headline"
        if isinstance(line, GainLine) and not line.gain.low <= 0 <= line.gain.high:  # the interval is clear of zero
            kind += " better" if line.gain.low > 0 else " worse"
        parts.append(f'<p class="{kind}">{safe(line)}</p>')
    parts.append("<nav>" + "".join(f'<a href="#{one.name}">{safe(one.title)}</a>' for one in shown) + "</nav>")
    for section in shown:
        parts += [f'<section id="{section.name}"><h2>{safe(section.title)}</h2>', *section.body, "</section>"]
    return "\n".join(parts) + "</html>\n"


def curves_section(panels: Sequence[Panel]) -> Section:
    body = [f"<figure><figcaption>{safe(one.title)}</figcaption>{svg(one)}</figure>" for one in panels]
    return Section(name="curves", title="Curves", body=['<div class="curves">', *body, "</div>"] if body else [])


def tables_section(tables: Sequence[Table]) -> Section:
    """Every table, folded."""
    return Section(name="tables", title="Tables", body=[part for table in tables for part in table_html(table)])


def table_html(table: Table, *, unfolded: bool = False) -> Iterator[str]:
    yield f'<details{" open" if unfolded else ""}><summary>{safe(table.title)}</summary><div class="scroll"><table>'
    for tag, rows in (("th", [table.columns]), ("td", table.rows)):
        for row in rows:
            yield "<tr>" + "".join(f"<{tag}>{escape(printable(cell))}</{tag}>" for cell in row) + "</tr>"
    yield "</table></div>"
    yield f"<p>{safe(table.note)}</p></details>" if table.note else "</details>"


def text_of_run(summary: RunSummary, made: Sequence[Table], *, width: int) -> str:
    """The headline, all tables but listings, and the headline again."""
    head, made = headline(summary), [table for table in made if not table.listing]
    return "\n".join([*head, "", as_text(f"Run {summary.run}", made, width=width), *head])


def page_of_run(summary: RunSummary, made: Sequence[Table], config: Config) -> str:
    """`report.html`. A run that has just begun has few sections."""
    sections = [
        curves_section(panels(summary)),
        *_steps_sections(summary, config),
        *(section for one in brought(Illustrates) for section in one.sections(summary)),
        tables_section(made),
    ]
    return report_page(f"Run {summary.run}", headline(summary), sections)


STEPS = 6  # in each section


def _steps_sections(summary: RunSummary, config: Config) -> Iterator[Section]:
    """Steps of the last iteration that was judged: on which the judge is most wrong, and which are most disputed."""
    judged = [i for i in played_iterations(summary.run, config) if is_complete(artifact(summary.run, "scores", i))]
    if not judged:
        return
    played = played_in(summary.run, judged[-1])
    titles: dict[Choice, str] = {"worst": "Worst judged", "disputed": "Most disputed"}
    for choice, title in titles.items():
        if choice == "disputed" or isinstance(environment(config.env.name), Labels):
            body = [_excerpt_html(one) for one in chosen_excerpts(played, config, choice, STEPS)]
            yield Section(name=choice, title=f"{title} steps of iteration {judged[-1]}", body=body)
