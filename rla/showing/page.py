"""Excerpts of episodes as HTML without scripts or outside resources. Every text is escaped: it never acts."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from html import escape

from rla.folding import printable
from rla.showing.records import Excerpt, ShownStep, Vote

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
    if step.reward is not None:
        yield tag(f"R {step.reward:+.2f}")
    if step.advantage is not None:
        yield tag(f"advantage {step.advantage:+.2f}")
    if step.label is not None:
        yield tag("it helped", "good") if step.label > 0 else tag("it did not help", "bad")


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
