"""Which completions are refused."""

from __future__ import annotations

import math

import pytest

from rla.llm.base import Completion, FinishReason, UnusableReply, usable_completions


def completion(*logprobs: float, token: int = 5) -> Completion:
    count = len(logprobs)
    return Completion(
        token_ids=[token] * count, logprobs=list(logprobs), allowed=[[]] * count, finish_reason=FinishReason.STOP
    )


@pytest.mark.parametrize("logprob", [math.nan, math.inf, -math.inf, 0.7])
def test_a_log_probability_that_no_sampler_has_is_refused(logprob: float) -> None:
    with pytest.raises(UnusableReply, match="log-probability"):
        usable_completions([completion(-1.0), completion(-1.0, logprob)])


def test_rounding_above_zero_is_zero() -> None:
    assert usable_completions([completion(-1.0, 3e-7)]) == [completion(-1.0, 0.0)]


@pytest.mark.parametrize("token", [-1, 1 << 31])
def test_a_token_id_that_no_vocabulary_has_is_refused(token: int) -> None:
    with pytest.raises(UnusableReply, match="token id"):
        usable_completions([completion(-1.0, token=token)])


def test_log_probabilities_one_short_are_refused() -> None:
    short = Completion(token_ids=[5, 6], logprobs=[-1.0], allowed=[[], []], finish_reason=FinishReason.STOP)
    with pytest.raises(UnusableReply, match="1 log-probabilities for 2 tokens"):
        usable_completions([short])
