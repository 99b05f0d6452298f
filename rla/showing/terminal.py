"""Excerpts of episodes in a terminal. What a model or an environment wrote is shown as plain text: it cannot speak to
the terminal, and rich reads no markup in it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from rla.folding import printable
from rla.showing.records import Excerpt, ShownEpisode, ShownStep, Vote

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
    """Those of the steps that are shown, and those of the end where it is."""
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
    """What was seen, what was done, what it was paid, and each vote with its reason."""
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
    """(text, style) of what is known of a step in one line."""
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
