"""Tables and episodes as terminal text and HTML, and the report of a run in these forms.

Texts of models and environments are untrusted. In a terminal they are plain text without control characters or rich's
markup. In HTML (`page.html`) every text is escaped, and a page has neither scripts nor resources from elsewhere.
"""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup
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
from rla.report.tables import Table, headline
from rla.store.layout import artifact
from rla.store.manifest import is_complete
from rla.text import printable

WIDTH = 150  # characters of a line in a file
MARGIN, GAP = 1, 3  # characters that rich adds: to a line, and to each cell
WIDEST = 24  # characters: a wider column may be folded
LONGEST = 1200  # characters of a text in a terminal; the page shows all of it
SIGNS = {1: ("+", "good"), -1: ("-", "bad"), None: ("?", "open")}  # score of a vote -> sign, class
COLOURS = {"": "cyan", "good": "green", "bad": "red", "open": "yellow"}  # of classes, in a terminal
STEPS = 6  # on the page of a run, in each section


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


def draw(excerpts: Sequence[Excerpt], stream: IO[str], *, width: int | None = None) -> None:
    """Write the excerpts to a terminal or a file."""
    console = Console(file=stream, width=width, highlight=False)
    for excerpt in excerpts:
        lines = Group(*_excerpt_lines(excerpt))
        console.print(Frame(lines, title=_plain(excerpt.episode.title), title_align="left", border_style="dim"))


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
        sign, kind = SIGNS[vote.score]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled part of a page. `body`: HTML whose texts are escaped, as by `safe`."""

    name: str
    title: str
    body: Sequence[str]


def safe(said: str) -> str:
    """A text as HTML."""
    return str(Markup.escape(printable(said).strip()))


@cache
def _page() -> Template:
    """`page.html`, whose macros draw excerpts and tables."""

    def shown(value: Any) -> Any:
        return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, finalize=shown, undefined=StrictUndefined)
    environment.filters["base64"] = lambda png: base64.standard_b64encode(png).decode()
    environment.filters["facts"] = _facts
    environment.globals |= {"signs": SIGNS, "title": "", "headline": (), "sections": (), "excerpts": ()}
    return environment.get_template("page.html")


def excerpts_page(title: str, excerpts: Sequence[Excerpt]) -> str:
    """A page that needs no other file."""
    return _page().render(title=title, excerpts=excerpts)


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


def page_of_run(summary: RunSummary, made: Sequence[Table], config: Config) -> str:
    """`report.html`. A run that has just begun has few sections."""
    sections = [
        curves_section(panels(summary)),
        *_steps_sections(summary, config),
        *(section for one in brought("sections") for section in one.sections(summary)),
        tables_section(made),
    ]
    return report_page(f"Run {summary.run}", headline(summary), sections)


def _steps_sections(summary: RunSummary, config: Config) -> Iterator[Section]:
    """Steps of the last iteration that was judged: on which the judge is most wrong, and which are most disputed."""
    judged = [i for i in played_iterations(summary.run, config) if is_complete(artifact(summary.run, "scores", i))]
    if not judged:
        return
    played = played_in(summary.run, config, judged[-1])
    titles: dict[Choice, str] = {"worst": "Worst judged", "disputed": "Most disputed"}
    for choice, title in titles.items():
        if choice == "disputed" or isinstance(environment(config.env.name), Labels):
            excerpts = chosen_excerpts(played, config, choice, STEPS)
            body = [str(_page().module.excerpt(one)) for one in excerpts]  # type: ignore[attr-defined]
            yield Section(name=choice, title=f"{title} steps of iteration {judged[-1]}", body=body)
