"""States of pages for tests, written as the mode `text` shows them."""

from __future__ import annotations

from typing import Any

from rla_screens.browser.state import PageElement, PageState


def state(utterance: str, *elements: PageElement, done: bool = False, reward: float = 0.0) -> PageState:
    return PageState(utterance=utterance, elements=elements, done=done, reward=reward)


def said(text: str) -> PageElement:
    """A piece of text."""
    return PageElement(ref=0, role="", text=text)


def thing(ref: int, role: str, text: str = "", **fields: Any) -> PageElement:
    return PageElement(ref=ref, role=role, text=text, **fields)
