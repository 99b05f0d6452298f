"""Excerpts of episodes as terminal text and HTML, and their sections on the page of a run.

Texts of models and environments are untrusted, and drawn as `rla.report.render` draws them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from jinja2 import Template
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel as Frame
from rich.text import Text

from rla.envs.protocols import Labels
from rla.envs.registry import environment
from rla.report.collect import RunSummary
from rla.report.render import Section, page_templates
from rla.store.layout import artifact
from rla.store.manifest import is_complete
from rla.text import printable
from rla_study.showing.episodes import Choice, Excerpt, ShownStep, chosen_excerpts, played_in, played_iterations

LONGEST = 1200  # characters of a text in a terminal; the page shows all of it
SIGNS = {1: ("+", "good"), -1: ("-", "bad"), None: ("?", "open")}  # score of a vote -> sign, class
COLOURS = {"": "cyan", "good": "green", "bad": "red", "open": "yellow"}  # of classes, in a terminal
STEPS = 6  # on the page of a run, in each section


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


@cache
def _page() -> Template:
    """`excerpts.html`, whose macro draws an excerpt."""
    templates = page_templates(Path(__file__).parent)
    templates.filters["base64"] = lambda png: base64.standard_b64encode(png).decode()
    templates.filters["facts"] = _facts
    templates.globals |= {"signs": SIGNS, "excerpts": ()}
    return templates.get_template("excerpts.html")


def excerpts_page(title: str, excerpts: Sequence[Excerpt]) -> str:
    """A page that needs no other file."""
    return _page().render(title=title, excerpts=excerpts)


def judged_steps(summary: RunSummary) -> list[Section]:
    """Sections of the report with steps of the last judged iteration: on which the judge is most wrong, and which are
    most disputed. Empty if nothing was judged, or if the run does not say which environment it is of.
    """
    run, config = summary.run, summary.config
    judged = [i for i in played_iterations(run, config) if is_complete(artifact(run, "scores", i))]
    if not judged or config.env.name is None:
        return []
    played = played_in(run, config, judged[-1])
    titles: dict[Choice, str] = {"disputed": "Most disputed"}
    if isinstance(environment(config.env.name), Labels):
        titles = {"worst": "Worst judged", **titles}
    found = []
    for choice, title in titles.items():
        excerpts = chosen_excerpts(played, config, choice, STEPS)
        body = [str(_page().module.excerpt(one)) for one in excerpts]  # type: ignore[attr-defined]
        found.append(Section(name=choice, title=f"{title} steps of iteration {judged[-1]}", body=body))
    return found
