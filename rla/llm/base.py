"""The interface of inference engines: token ids in, token ids and log-probabilities out, and checks of both."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from rla.pictures.vision import PlacedImage
from rla.seeds import derive

NEVER = -100.0  # the lowest bias of a logit that vLLM and servers take
SEED_MASK = (1 << 62) - 1  # vLLM adds the sample's index and wants an int64
# (prompt ids, seed, ids offered) -> the id drawn and its log-probability over the ids offered
Choose = Callable[[list[int], int, list[int]], Awaitable[tuple[int, float]]]
COLDEST, HOTTEST = 0.001, 1000.0  # temperatures by which logits in fp32 can be divided
MOST_SAMPLES = 1 << 16
ROUNDING = 1e-4  # by which a log-probability may be above 0
TRIES = 3  # requests for a reply before it is given up
LARGEST_ID = (1 << 31) - 1


class TokenTrie:
    """Built from token sequences that each end with a stop token; nodes are dictionaries id -> node. `least` and `most`
    are the smallest and the largest id, 0 if it is empty.
    """

    __slots__ = ("least", "most", "root")

    def __init__(self, sequences: Iterable[Sequence[int]]) -> None:
        self.root: dict[int, dict] = {}
        self.least = self.most = 0
        for sequence in sequences:
            node = self.root
            self.least, self.most = min(self.least, *sequence, 0), max(self.most, *sequence, 0)
            for token in sequence:
                node = node.setdefault(token, {})

    def allowed(self, prefix: Sequence[int]) -> list[int]:
        """Sorted ids that may follow `prefix`, empty if it is complete. Raises KeyError if it is not a path."""
        node = self.root
        for token in prefix:
            node = node[token]
        return sorted(node)


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A prompt and how to continue it.

    `session` names a growing sequence: an engine may keep its KV cache until `release(session)`; the next prompt of
    the session starts with the last prompt and completion. `samples` completions share the prompt (sample j draws
    from seed + j). `allowed` restricts every sampled token to a path of the trie; log-probabilities are renormalised
    over the tokens that the trie offers, and the offered ids are returned.

    `json_schema` asks for a reply that fits a JSON Schema from its first token on, so thoughts have to be in the prompt
    (`rla.adaptation.drafting`). It is for texts that are read and never trained on: which ids it left open is not
    returned. vLLM and servers hold a reply to it, other engines do not: read it strictly.

    `images` belong to the image tokens of the prompt, which has an id for every token that the model will see. `turns`
    is the same prompt as messages, for engines that do not take token ids together with images.

    `top_p` below 1 samples from the nucleus: of the tokens that the trie offers, the smallest set of the likeliest ones
    whose probability at the temperature reaches top_p. It is for evaluation only, because a trainer renormalises over
    `allowed`, and the ids in the nucleus are not returned.
    """

    prompt_ids: Sequence[int]
    max_tokens: int
    temperature: float
    seed: int
    samples: int = 1
    session: str | None = None
    allowed: TokenTrie | None = None
    json_schema: Mapping[str, Any] | None = None
    top_p: float = 1.0
    images: Sequence[PlacedImage] = ()
    turns: Sequence[Any] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A sampled reply including its stop token. `logprobs` belong to the distribution that was sampled from (after
    temperature, restriction and top_p). `allowed` has the ids offered for each token before top_p, empty lists if
    unrestricted.
    """

    token_ids: list[int]
    logprobs: list[float]
    allowed: list[list[int]]
    finish_reason: FinishReason


class Generator(Protocol):
    """An inference engine. `context` is the length of the longest sequence in tokens."""

    context: int

    async def generate(self, request: Request) -> list[Completion]:
        """`request.samples` completions in order, sample j with the seed `seed` + j.

        Call `check_request` first and return through `usable_completions`. An engine that cannot follow a trie of
        replies uses `restricted`.
        """

    def release(self, session: str) -> None: ...

    def close(self) -> None: ...


async def restricted(request: Request, choose: Choose) -> list[Completion]:
    """Samples of a request with a trie, from an engine that restricts a single token at a time.

    Each token is one request over the ids that the trie offers; forced tokens need none. A token's seed depends only on
    the sample's seed and the token's position. Raises ValueError if the request has no trie.
    """
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
            digest = hashlib.blake2b(f"{seed}:{len(prompt)}".encode(), digest_size=8).digest()
            token, logprob = await choose(prompt, int.from_bytes(digest, "little") & SEED_MASK, choices)
        tokens.append(token)
        logprobs.append(0.0 if request.temperature == 0 else logprob)  # a greedy choice is certain
        offered.append(choices)
        node = node[token]
    reason = FinishReason.LENGTH if node else FinishReason.STOP
    return Completion(token_ids=tokens, logprobs=logprobs, allowed=offered, finish_reason=reason)


class UnusableReply(Exception):
    """An engine answered with impossible tokens or log-probabilities. Asking again may help."""


def usable_completions(completions: Sequence[Completion]) -> list[Completion]:
    """The completions, with log-probabilities that rounding lifted above 0 set to 0. Every engine returns through this.

    Raises UnusableReply for a log-probability that is NaN, infinite or positive, for a token id out of range, and for
    lists of different lengths.
    """
    found = []
    for one in completions:
        if not len(one.token_ids) == len(one.logprobs) == len(one.allowed):
            raise UnusableReply(
                f"the engine reported {len(one.logprobs)} log-probabilities for {len(one.token_ids)} tokens"
            )
        for token, logprob in zip(one.token_ids, one.logprobs, strict=True):
            if not 0 <= token <= LARGEST_ID:
                raise UnusableReply(f"the engine reported a token id of {token}")
            if not -math.inf < logprob <= ROUNDING:
                raise UnusableReply(f"the engine reported a log-probability of {logprob:g} for token {token}")
        lifted = any(logprob > 0.0 for logprob in one.logprobs)
        found.append(replace(one, logprobs=[min(logprob, 0.0) for logprob in one.logprobs]) if lifted else one)
    return found


async def replies_to(generator: Generator, request: Request) -> list[Completion]:
    """The engine's answer, requested up to TRIES times with new seeds until it is usable.

    Raises UnusableReply after the last try, and any error of the engine.
    """
    for attempt in range(1, TRIES):
        try:
            return usable_completions(await generator.generate(request))
        except UnusableReply:
            if request.session is not None:
                generator.release(request.session)  # its KV cache may be at fault
            request = replace(request, seed=derive(request.seed, "again", attempt))
    return usable_completions(await generator.generate(request))


def check_request(request: Request, *, context: int, vocabulary: int | None = None) -> None:
    """Refuse a request that no engine could answer.

    Raises ValueError for a request that does not fit the `context`, without a prompt or anything to sample, with a
    temperature that divides to infinity, with a top_p that leaves no token, with a schema although its reply may train
    (restricted to a trie, or part of a session), or with ids outside a `vocabulary` of that size.
    """
    if request.samples > MOST_SAMPLES:
        raise ValueError(f"{request.samples} samples; one request may have {MOST_SAMPLES}")
    if request.temperature and not COLDEST <= request.temperature <= HOTTEST:
        raise ValueError(f"a temperature of {request.temperature}; it must be 0, or from {COLDEST} to {HOTTEST}")
    if not 0 < request.top_p <= 1:
        raise ValueError(f"a top_p of {request.top_p}; it must be above 0 and at most 1")
    if not request.prompt_ids or request.max_tokens < 1 or request.samples < 1:
        raise ValueError("a request needs a prompt, max_tokens and samples of at least one")
    if request.json_schema is not None and (request.allowed is not None or request.session is not None):
        raise ValueError("json_schema is for replies that do not train: without allowed and without session")
    count = len(request.prompt_ids)
    if count + request.max_tokens > context:
        raise ValueError(f"prompt of {count} tokens + {request.max_tokens} to sample exceed the context of {context}")
    if vocabulary is not None:  # a pass with an unknown id would fail for all requests in it
        least, most = min(request.prompt_ids), max(request.prompt_ids)
        if request.allowed is not None:
            least, most = min(least, request.allowed.least), max(most, request.allowed.most)
        if least < 0 or most >= vocabulary:
            raise ValueError(f"ids from {least} to {most}; the vocabulary ends at {vocabulary - 1}")
