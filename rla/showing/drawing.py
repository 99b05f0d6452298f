"""Excerpts of episodes in a terminal and as HTML.

Texts of models and environments are untrusted. In the terminal they are plain text, without control characters and
without rich's markup; in HTML, which has no scripts and no outside resources, every text is escaped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from rla.folding import printable
from rla.showing.episodes import Excerpt, ShownEpisode, ShownStep, Vote

LONGEST = 1200  # characters of one text; the page shows all of it
SIGNS = {1: ("+", "green"), -1: ("-", "red"), None: ("?", "yellow")}
KITTY = 4096  # bytes of one piece of a picture, in kitty's protocol


def draw(excerpts: Sequence[Excerpt], stream: IO[str], *, width: int | None = None, pictures: bool = False) -> None:
    """Write the excerpts to a terminal or a file. `pictures`: the terminal draws kitty's graphics."""
    console = Console(file=stream, width=width, highlight=False)
    for excerpt in excerpts:
        console.print(
            Panel(body(excerpt), title=plain_text(excerpt.episode.title), title_align="left", border_style="dim")
        )
        for image in shown_images(excerpt) if pictures else ():
            stream.write("".join(kitty(image)) + "\n")


def shown_images(excerpt: Excerpt) -> list[bytes]:
    """The pictures of the steps shown, and of the end if it is shown."""
    images = [image for step in excerpt.shown for image in step.images]
    return [*images, *excerpt.episode.last_images] if excerpt.to_the_end else images


def body(excerpt: Excerpt) -> RenderableType:
    episode = excerpt.episode
    lines: list[RenderableType] = [plain_text(excerpt.why, "bold yellow")] if excerpt.why else []
    lines.append(plain_text(episode.instruction, "bold"))
    last = -1
    for step in excerpt.shown:
        if step.index > last + 1:
            lines.append(Text("...", style="dim"))
        lines += step_lines(step)
        last = step.index
    return Group(*lines, *episode_end(episode, whole=excerpt.to_the_end))


def episode_end(episode: ShownEpisode, *, whole: bool) -> Iterator[RenderableType]:
    if not whole:
        yield Text("...", style="dim")
        return
    yield Padding(plain_text(cut(episode.verdict) + images_note(episode.last_images), "dim"), (0, 0, 0, 4))
    if episode.error:
        yield plain_text(f"the environment broke: {cut(episode.error)}", "red")
    earned = "" if episode.reward is None else f", reward {episode.reward:.3g}"
    yield plain_text(f"{episode.ended}{earned}", "green" if episode.won else "red")


def step_lines(step: ShownStep) -> Iterator[RenderableType]:
    """Observation, action, rewards, and each vote with its reason."""
    yield Padding(plain_text(cut(step.observation) + images_note(step.images), "dim"), (0, 0, 0, 4))
    yield Text.assemble((f"{step.index:3} ", "cyan"), "> ", (fit(step.action), "bold"), "  ", *map(token, facts(step)))
    if not step.valid:
        yield Padding(plain_text(f"no action could be read in: {cut(step.reply)}", "red"), (0, 0, 0, 6))
    elif step.reply.strip() != step.action.strip():
        yield Padding(plain_text(cut(step.reply)), (0, 0, 0, 6))
    for vote in step.votes:
        yield Padding(vote_line(vote), (0, 0, 0, 6))


def images_note(images: Sequence[bytes]) -> str:
    return f" [{len(images)} images]" if images else ""


def facts(step: ShownStep) -> Iterator[tuple[str, str]]:
    """(text, style) of rewards and label."""
    if step.reward is not None:
        yield f"R {step.reward:+.2f}", "cyan"
    if step.advantage is not None:
        yield f"advantage {step.advantage:+.2f}", "cyan"
    if step.label is not None:
        yield ("it helped", "green") if step.label > 0 else ("it did not help", "red")


def token(fact: tuple[str, str]) -> tuple[str, str]:
    return f"  {fact[0]}", fact[1]


def vote_line(vote: Vote) -> Text:
    sign, style = SIGNS[vote.score]
    paid = "" if vote.reward is None else f" (paid {vote.reward:+.2f})"
    return Text.assemble((f"vote {sign}{paid} ", style), fit(cut(vote.text)))


def plain_text(text: str, style: str = "") -> Text:
    return Text(fit(text), style=style)


def fit(text: str) -> str:
    return printable(text).strip()


def cut(text: str) -> str:
    """The beginning and the end of a long text."""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def kitty(png: bytes) -> Iterable[str]:
    """A PNG file in kitty's graphics protocol: base64 in pieces, all but the last with m=1."""
    data = base64.standard_b64encode(png).decode()
    pieces = [data[start : start + KITTY] for start in range(0, len(data), KITTY)] or [""]
    for number, piece in enumerate(pieces):
        head = "a=T,f=100," if number == 0 else ""
        yield f"\x1b_G{head}m={int(number + 1 < len(pieces))};{piece}\x1b\\"


STYLE = """
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
KINDS = {"green": "good", "red": "bad"}  # classes of the page, by the colours of the terminal
VOTE = {1: ("good", "+"), -1: ("bad", "-"), None: ("open", "?")}


def excerpts_page(title: str, excerpts: Sequence[Excerpt]) -> str:
    """One page that stands alone."""
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{safe(title)}</title><style>{STYLE}</style>'
    return "\n".join([head, f"<h1>{safe(title)}</h1>", *map(excerpt_html, excerpts)]) + "</html>\n"


def excerpt_html(excerpt: Excerpt) -> str:
    """One article. STYLE has its classes."""
    episode = excerpt.episode
    parts = ["<article>", f"<h3>{safe(episode.title)}</h3>"]
    parts += [f'<p class="why">{safe(excerpt.why)}</p>'] if excerpt.why else []
    parts.append(text_block(episode.instruction, "action"))
    parts += [part for step in excerpt.shown for part in step_html(step)]
    if excerpt.to_the_end:
        parts += [text_block(episode.verdict, "seen"), *map(picture, episode.last_images)]
    if episode.error:
        parts.append(text_block(f"the environment broke: {episode.error}", "bad"))
    return "\n".join([*parts, "</article>"])


def step_html(step: ShownStep) -> Iterator[str]:
    yield '<div class="step">'
    yield text_block(step.observation, "seen")
    yield from map(picture, step.images)
    yield f'<div class="text action">{step.index} &gt; {safe(step.action)}{"".join(fact_tags(step))}</div>'
    if not step.valid or step.reply.strip() != step.action.strip():
        yield text_block(step.reply, "" if step.valid else "bad")
    yield from map(vote_html, step.votes)
    yield "</div>"


def picture(png: bytes) -> str:
    return f'<img alt="screenshot" src="data:image/png;base64,{base64.standard_b64encode(png).decode()}">'


def fact_tags(step: ShownStep) -> Iterator[str]:
    if not step.valid:
        yield tag("no action could be read", "bad")
    yield from (tag(said, KINDS.get(style, "")) for said, style in facts(step))


def tag(said: str, kind: str = "") -> str:
    return f'<span class="fact {kind}">{safe(said)}</span>'


def vote_html(vote: Vote) -> str:
    kind, sign = VOTE[vote.score]
    paid = "" if vote.reward is None else f" paid {vote.reward:+.2f}"
    return f'<div class="text"><span class="fact {kind}">vote {sign}{paid}</span> {safe(vote.text)}</div>'


def text_block(said: str, kind: str) -> str:
    return f'<div class="text {kind}">{safe(said)}</div>'


def safe(said: str) -> str:
    return escape(printable(said).strip())
