"""The proposer's side of a change: from a completion to the edit that it states, or to the reason why there is none.

The edit stays a text here, whoever wrote it: the environment reads it against its whitelists.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from dataclasses import replace
from typing import NamedTuple

from rla.llm.base import Completion, FinishReason, Generator, Request, replies_to
from rla.llm.chat import ChatFormat, reply_text
from rla.text import TAG, after_thinking, open_thought

LONGEST = 8000  # characters that are kept of a reply


class Proposal(NamedTuple):
    """An edit as JSON text; `refused` says why it is none, where that is known before the environment looks at it.
    Without an edit it is no proposal, and says why nothing was proposed.
    """

    edit: str | None
    refused: str = ""


NOTHING = Proposal(None, "no edit was found")


async def held_after_thoughts(generator: Generator, request: Request, chat: ChatFormat) -> list[Completion]:
    """The replies to a request with a JSON Schema. Engines hold a reply to it from the first token on, so a model that
    thinks is asked twice: freely, and then held to the schema behind its thoughts. `max_tokens` are of both together.
    """
    if not chat.thinks:
        return await replies_to(generator, request)
    free = await replies_to(generator, replace(request, json_schema=None))
    single = [replace(request, samples=1, seed=request.seed + index) for index in range(request.samples)]
    asked = (_continued(generator, one, said, chat) for one, said in zip(single, free, strict=True))
    return list(await asyncio.gather(*asked))


async def _continued(generator: Generator, request: Request, said: Completion, chat: ChatFormat) -> Completion:
    thoughts = thought_tokens(said, chat)
    if thoughts is None or len(thoughts) >= request.max_tokens:
        return said
    count = len(thoughts)
    prompt = [*request.prompt_ids, *thoughts]
    (held,) = await replies_to(generator, replace(request, prompt_ids=prompt, max_tokens=request.max_tokens - count))
    return replace(
        held,
        token_ids=[*thoughts, *held.token_ids],
        logprobs=[*said.logprobs[:count], *held.logprobs],
        allowed=[*said.allowed[:count], *held.allowed],
    )


def thought_tokens(said: Completion, chat: ChatFormat) -> list[int] | None:
    """The tokens of a reply up to the end of its thoughts and the white space behind them; none where it has not
    thought, and None if its thoughts do not end.
    """
    if open_thought(reply_text(said, chat)):
        return None
    ids = said.token_ids

    def tags(count: int) -> int:
        return len(TAG.findall(chat.decode(ids[:count])))

    end = bisect_left(range(len(ids) + 1), tags(len(ids)), key=tags)
    while end and chat.decode(ids[end : end + 1]).isspace():
        end += 1
    return ids[:end]


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
