"""Which earlier reply a request continues. An agent sends its whole conversation with each request.

A request continues a step if it begins with that step's messages and reply, and has the same tools. The reply keeps its
sampled tokens. Any other request begins a segment. It has rewritten history if an earlier request had the same messages
up to the first one of the user, or one of the replies; otherwise it opens another conversation, as sub-agents do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rla_programs.tool.calls import CallFormat

from rla.envs.observation import ChatTurns
from rla_gateway.messages import ChatRequest, WireMessage

REWRITTEN, OPENED = "(the history was rewritten)", "(a new conversation)"


class Conversations:
    """The requests and replies of an episode."""

    def __init__(self, calls: CallFormat) -> None:
        self.calls = calls
        self._steps: dict[str, int] = {}  # digest of a request with its reply -> number of the step
        self._known: set[str] = set()  # digests of openings and of replies
        self._count = 0

    def asked(self, request: ChatRequest) -> tuple[str, ChatTurns]:
        """The text of the next observation, and its prompt."""
        messages = request.messages
        known = [self._steps.get(one) for one in _digests(messages[:-1], request.tools)]
        end = max((number for number, step in enumerate(known, start=1) if step is not None), default=0)
        turns = tuple((one.role, one.content(self.calls)) for one in messages[end:])
        text = turns[0][1] if len(turns) == 1 else "\n\n".join(f"{role}: {said}" for role, said in turns)
        opening = next((number for number, one in enumerate(messages, start=1) if one.role == "user"), len(messages))
        opened = _digests(messages[:opening])[-1]
        if self._known and not end:
            replies = {_digests([one])[0] for one in messages if one.role == "assistant"}
            text = f"{OPENED if self._known.isdisjoint({opened, *replies}) else REWRITTEN}\n{text}"
        self._known.add(opened)
        return text, ChatTurns(turns, after=known[end - 1] if end else None, tools=request.tools)

    def replied(self, request: ChatRequest, reply: WireMessage) -> None:
        """The reply of the next step, which answers this request."""
        self._steps[_digests([*request.messages, reply], request.tools)[-1]] = self._count
        self._known.add(_digests([reply])[0])
        self._count += 1


def _digests(messages: Sequence[WireMessage], tools: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """A digest of the tools and the messages up to each message. White space around a reply does not count, because
    clients trim it.
    """
    digest, found = hashlib.sha256(json.dumps(tools, sort_keys=True).encode()), []
    for one in messages:
        text = one.text.strip() if one.role == "assistant" else one.text
        calls = [(name, json.loads(arguments)) for name, arguments in one.calls]
        digest.update(hashlib.sha256(json.dumps([one.role, text, calls], sort_keys=True).encode()).digest())
        found.append(digest.hexdigest())
    return found
