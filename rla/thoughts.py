"""Thoughts in a reply: what a model writes between `<think>` and `</think>` neither acts, answers nor votes.

Some families have other tags: `[THINK]` (Magistral), `<seed:think>` (Seed-OSS), `\u25c1think\u25b7` (Kimi).
"""

from __future__ import annotations

import re

TAG = re.compile(
    r"<(/?)(?:(?:seed:)?think(?:ing)?|thought|reasoning)\s*>|\[(/?)THINK\]|\u25c1(/?)think\u25b7", re.IGNORECASE
)


def closes(tag: re.Match[str]) -> bool:
    return any(tag.groups())


def after_thinking(text: str) -> str:
    """What follows the last closing tag; empty if a thought is not closed. Text without tags is returned unchanged."""
    answer, thinks = 0, False
    for tag in TAG.finditer(text):
        thinks = not closes(tag)
        answer = answer if thinks else tag.end()
    return "" if thinks else text[answer:]


def past_reply(text: str) -> str:
    """An earlier reply as the templates of thinking models leave it in a prompt: without its thoughts."""
    return after_thinking(text).lstrip("\n")


def open_thought(text: str) -> str:
    """The end of `text` from the tag of a thought that is not closed; empty if there is none."""
    opening = None
    for tag in TAG.finditer(text):
        opening = None if closes(tag) else opening or tag
    return text[opening.start() :] if opening else ""
