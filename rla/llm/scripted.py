"""A Generator without a model: a deterministic function of the request gives the replies.

Log-probabilities belong to a uniform choice: -log(number of ids offered), or 0 if the reply is unrestricted.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

from rla.llm.base import Completion, FinishReason, Request, check_request, usable_completions

Reply = Callable[[Request, int], list[int]]


def hashed_path(request: Request, seed: int, *, stop_id: int) -> list[int]:
    """A path of the request's trie picked by hash(seed, prompt), or just `stop_id` without a trie."""
    if request.allowed is None:
        return [stop_id]
    state = hashlib.blake2b(f"{seed}:{','.join(map(str, request.prompt_ids))}".encode(), digest_size=8)
    tokens: list[int] = []
    while choices := request.allowed.allowed(tokens):
        tokens.append(choices[int.from_bytes(state.digest(), "little") % len(choices)])
        state.update(tokens[-1].to_bytes(8, "little"))
    return tokens


class ScriptedGenerator:
    """Answers with `reply(request, seed of the sample)`, by default `hashed_path`, cut at `max_tokens`."""

    def __init__(self, reply: Reply | None = None, *, context: int = 1 << 30, stop_id: int = 0) -> None:
        self.context = context
        self.requests = 0
        self._reply: Reply = reply or (lambda request, seed: hashed_path(request, seed, stop_id=stop_id))

    async def generate(self, request: Request) -> list[Completion]:
        """Raises ContextOverflow like an engine, KeyError for a reply that the trie does not allow."""
        check_request(request, context=self.context)
        self.requests += 1
        return usable_completions([self._complete(request, request.seed + index) for index in range(request.samples)])

    def release(self, session: str) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""

    def _complete(self, request: Request, seed: int) -> Completion:
        reply = self._reply(request, seed)
        tokens = reply[: request.max_tokens]
        offered: list[list[int]] = [[] for _ in tokens]
        if request.allowed is not None:
            offered = [request.allowed.allowed(tokens[:index]) for index in range(len(tokens))]
            request.allowed.allowed(tokens)
        return Completion(
            token_ids=tokens,
            logprobs=[-math.log(len(ids)) if ids else 0.0 for ids in offered],
            allowed=offered,
            finish_reason=FinishReason.STOP if len(tokens) == len(reply) else FinishReason.LENGTH,
        )
