"""The proposer's side of a change: from a completion to the edit that it states, or to the reason why there is none.

The edit stays a text here, whoever wrote it: the environment reads it against its whitelists.
"""

from __future__ import annotations

from typing import NamedTuple

from rla.agents.replies import reply_text
from rla.llm.base import Completion, FinishReason
from rla.llm.chat import ChatFormat
from rla.thoughts import after_thinking

LONGEST = 8000  # characters that are kept of a reply


class Proposal(NamedTuple):
    """An edit as JSON text; `refused` says why it is none, where that is known before the environment looks at it.
    Without an edit it is no proposal, and says why nothing was proposed.
    """

    edit: str | None
    refused: str = ""


NOTHING = Proposal(None, "no edit was found")


def read_proposal(completion: Completion, chat: ChatFormat) -> Proposal:
    """The JSON object that the reply holds: what a model thought before it and a fence around it are left out."""
    text = reply_text(completion, chat)
    if completion.finish_reason is FinishReason.LENGTH:
        return Proposal(kept(text), "the reply was cut at adaptation.llm.max_tokens")
    answer = after_thinking(text)
    if text and not answer:
        return Proposal(kept(text), "the reply ends with its thoughts")
    return Proposal(kept(json_object(answer)))


def json_object(text: str) -> str:
    """From the first brace to the last; all of the text where there are none."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text.strip()


def kept(text: str) -> str:
    """A text that can be stored: valid Unicode, and not longer than anybody reads."""
    return text[:LONGEST].encode("utf-8", "replace").decode("utf-8")
