"""What a Generator may refuse, and which of its completions are refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rla.errors import UserError
from rla.llm.base import Completion, Generator, Request
from rla.seeds import derive

COLDEST, HOTTEST = 0.001, 1000.0  # temperatures by which logits in fp32 can be divided
MOST_SAMPLES = 1 << 16
ROUNDING = 1e-4  # by which a log-probability may be above 0
TRIES = 3  # requests for a reply before it is given up
LARGEST_ID = (1 << 31) - 1


class ContextOverflow(Exception):
    """The prompt and `max_tokens` together do not fit the engine's context; all counts are tokens."""

    def __init__(self, *, prompt: int, max_tokens: int, context: int) -> None:
        super().__init__(f"prompt of {prompt} tokens + {max_tokens} to sample exceed the context of {context}")
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.context = context

    def __reduce__(self) -> tuple[partial[ContextOverflow], tuple[()]]:
        """Pickled by what it was made of."""
        return partial(type(self), prompt=self.prompt, max_tokens=self.max_tokens, context=self.context), ()


class UnusableReply(Exception):
    """An engine answered with tokens or log-probabilities that no sampler has: it may do better if asked again."""


def usable_completions(completions: Sequence[Completion]) -> list[Completion]:
    """The completions, log-probabilities that rounding has lifted above 0 set to 0. Every engine returns through this.

    Raises UnusableReply for a log-probability that is NaN, infinite or positive, for a token id below 0, and for lists
    of different lengths.
    """
    return [one if all(map(ordinary, one.logprobs)) else at_most_zero(one) for one in map(complete, completions)]


def ordinary(logprob: float) -> bool:
    """Whether it is finite and not positive."""
    return -math.inf < logprob <= 0.0


def complete(completion: Completion) -> Completion:
    """The completion. Raises UnusableReply as `usable_completions` does for its tokens."""
    tokens = completion.token_ids
    if not len(tokens) == len(completion.logprobs) == len(completion.allowed):
        raise UnusableReply(
            f"the engine reported {len(completion.logprobs)} log-probabilities for {len(tokens)} tokens"
        )
    if odd := [token for token in tokens if not 0 <= token <= LARGEST_ID]:
        raise UnusableReply(f"the engine reported a token id of {odd[0]}")
    return completion


def at_most_zero(completion: Completion) -> Completion:
    """Log-probabilities of at most 0. Raises UnusableReply as `usable_completions` does for them."""
    for token, logprob in zip(completion.token_ids, completion.logprobs, strict=True):
        if not -math.inf < logprob <= ROUNDING:
            raise UnusableReply(f"the engine reported a log-probability of {logprob:g} for token {token}")
    return replace(completion, logprobs=[min(logprob, 0.0) for logprob in completion.logprobs])


async def replies_to(generator: Generator, request: Request) -> list[Completion]:
    """The engine's answer, asked for up to `TRIES` times, each time with another seed, until it is usable.

    Raises UnusableReply when all tries are over, and whatever the engine raises.
    """
    for attempt in range(1, TRIES):
        try:
            return usable_completions(await generator.generate(request))
        except UnusableReply:
            if request.session is not None:
                generator.release(request.session)  # what is kept of it may be at fault
            request = replace(request, seed=derive(request.seed, "again", attempt))
    return usable_completions(await generator.generate(request))


def as_told(error: BaseException) -> Exception:
    """The exception for another process: what a Generator may raise keeps its kind, a defect is a RuntimeError. All of
    them can be pickled.
    """
    if isinstance(error, ContextOverflow):
        return error
    for kind in (UserError, ValueError, UnusableReply):
        if isinstance(error, kind):
            return kind(str(error))
    return RuntimeError(f"the engine failed: {type(error).__name__}: {error} (its own log says more)")


def check_tokens(request: Request, *, vocabulary: int) -> None:
    """Raises ValueError for ids that the model has not: a pass with one of them fails for all who are in it."""
    least, most = min(request.prompt_ids), max(request.prompt_ids)
    if request.allowed is not None:
        least, most = min(least, request.allowed.least), max(most, request.allowed.most)
    if least < 0 or most >= vocabulary:
        raise ValueError(f"ids from {least} to {most}; the vocabulary ends at {vocabulary - 1}")


def check_request(request: Request, *, context: int, vocabulary: int | None = None) -> None:
    """With the size of a `vocabulary` also `check_tokens`. Raises ContextOverflow, or ValueError for a request without
    a prompt or without anything to sample, with a temperature that divides to infinity, with a top_p that leaves no
    token, or with a schema where its reply may train: restricted to a trie, or part of a session.
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
    if len(request.prompt_ids) + request.max_tokens > context:
        raise ContextOverflow(prompt=len(request.prompt_ids), max_tokens=request.max_tokens, context=context)
    if vocabulary is not None:
        check_tokens(request, vocabulary=vocabulary)
