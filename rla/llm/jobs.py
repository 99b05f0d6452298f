"""A request on its way through an engine: its samples go as one row for as long as they say the same."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from rla.llm.base import Completion, FinishReason, Request
from rla.llm.slots import Ints


@dataclass(slots=True, kw_only=True, eq=False)
class Row:
    """A completion being sampled, for all samples (one seed each) that have drawn the same tokens so far."""

    job: EngineJob
    seeds: list[int]
    session: str | None
    node: dict[int, Any] | None
    slot: int = -1
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    offered: list[list[int]] = field(default_factory=list)
    forced: int = 0  # how many of the tokens were the only one offered

    def part(self, seeds: list[int]) -> Row:
        """The row of samples that are about to draw another token. It has no slot, and the session stays behind."""
        return replace(
            self,
            seeds=seeds,
            session=None,
            slot=-1,
            tokens=self.tokens[:],
            logprobs=self.logprobs[:],
            offered=self.offered[:],
        )

    def choices(self) -> list[int]:
        """Ids that the trie offers next; empty where unrestricted."""
        return [] if self.node is None else sorted(self.node)

    def accept(self, token: int, logprob: float, offered: list[int]) -> None:
        """Append a token and go down the trie with it."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.offered.append(offered)
        if self.node is not None:
            self.node = self.node[token]

    def force(self) -> None:
        """Take every token that is the only one offered."""
        while self.node is not None and len(self.node) == 1 and len(self.tokens) < self.job.request.max_tokens:
            (token,) = self.node
            self.accept(token, 0.0, [token])
            self.forced += 1

    def finish_reason(self, stop_ids: Collection[int]) -> FinishReason | None:
        """Why there is nothing more to sample, or None while there is."""
        if self.node == {} or (self.node is None and self.tokens and self.tokens[-1] in stop_ids):
            return FinishReason.STOP
        return FinishReason.LENGTH if len(self.tokens) >= self.job.request.max_tokens else None


@dataclass(slots=True, kw_only=True, eq=False)
class EngineJob:
    """A request and those of its completions that are done, by sample index. `prompt`: its ids as the cache keeps them;
    `places`: their rotary positions and the next one, for who counts them in another way than by tokens.
    """

    request: Request
    prompt: Ints
    future: asyncio.Future[list[Completion]]
    done: dict[int, Completion] = field(default_factory=dict)
    places: tuple[Ints, int] | None = None

    def finish(self, row: Row, reason: FinishReason) -> None:
        """Note a finished row; the last one answers the request, samples in their order."""
        for seed in row.seeds:
            self.done[seed - self.request.seed] = Completion(
                token_ids=row.tokens, logprobs=row.logprobs, allowed=row.offered, finish_reason=reason
            )
        if len(self.done) == self.request.samples and not self.future.done():
            self.future.set_result([self.done[index] for index in range(self.request.samples)])
