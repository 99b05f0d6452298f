"""Completions restricted to the paths of a trie, on an engine that can only be asked for one of some tokens.

One request a token, over the ids that the trie offers; what the trie forces is appended without asking. The
engine's prefix cache makes the growing prompts cheap. A token's seed depends on the sample's seed and the
token's position alone.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable

from rla.llm.base import Completion, FinishReason, Request

SEED_MASK = (1 << 62) - 1  # vLLM adds the sample's index and wants an int64

# (prompt ids, seed, ids offered) -> the id drawn and its log-probability over the ids offered
Choose = Callable[[list[int], int, list[int]], Awaitable[tuple[int, float]]]


async def restricted(request: Request, choose: Choose) -> list[Completion]:
    """The request's samples, each a path of its trie. Raises ValueError where the request has none."""
    seeds = range(request.seed, request.seed + request.samples)
    return list(await asyncio.gather(*(_walk(request, seed, choose) for seed in seeds)))


async def _walk(request: Request, seed: int, choose: Choose) -> Completion:
    if request.allowed is None:
        raise ValueError("a restricted completion needs a trie")
    node = request.allowed.root
    tokens: list[int] = []
    logprobs: list[float] = []
    offered: list[list[int]] = []
    while node and len(tokens) < request.max_tokens:
        choices = sorted(node)
        token, logprob = choices[0], 0.0
        if len(choices) > 1:
            prompt = [*request.prompt_ids, *tokens]
            token, logprob = await choose(prompt, token_seed(seed, len(prompt)), choices)
        tokens.append(token)
        logprobs.append(0.0 if request.temperature == 0 else logprob)  # a greedy choice is certain
        offered.append(choices)
        node = node[token]
    reason = FinishReason.LENGTH if node else FinishReason.STOP
    return Completion(token_ids=tokens, logprobs=logprobs, allowed=offered, finish_reason=reason)


def token_seed(seed: int, position: int) -> int:
    """The seed of the token at `position` of a sample's sequence."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") & SEED_MASK
