"""What a Generator raises arrives in another process as what it was, and which completions are refused."""

from __future__ import annotations

import math
import pickle

import pytest

from rla.errors import UserError
from rla.llm.base import Completion, ContextOverflow, FinishReason, UnusableReply, as_told, usable_completions


def told(error: Exception) -> Exception:
    """As the other process has it."""
    arrived: Exception = pickle.loads(pickle.dumps(as_told(error)))
    return arrived


def test_a_prompt_that_is_too_long_keeps_its_counts() -> None:
    found = told(ContextOverflow(prompt=9, max_tokens=4, context=10))
    assert isinstance(found, ContextOverflow)
    assert (found.prompt, found.max_tokens, found.context) == (9, 4, 10)
    assert str(found) == "prompt of 9 tokens + 4 to sample exceed the context of 10"


class UnusualError(ValueError):
    """Of a library, made of what cannot be pickled."""

    def __init__(self, text: str, held: object) -> None:
        super().__init__(text)
        self.held = held


def test_kinds_are_kept_and_what_cannot_be_pickled_is_left_behind() -> None:
    with pytest.raises(UserError, match="mend it"):
        raise told(UserError("mend it"))
    found = told(UnusualError("no such id", lambda: None))
    assert type(found) is ValueError and str(found) == "no such id"
    defect = told(KeyError("x"))
    assert type(defect) is RuntimeError and "KeyError: 'x'" in str(defect)


def test_an_unusable_reply_stays_one() -> None:
    assert type(told(UnusableReply("a log-probability of nan"))) is UnusableReply


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
