"""What a Generator raises arrives in another process as what it was."""

from __future__ import annotations

import pickle

import pytest
from rla_ray.engines.actor import as_told

from rla.errors import UserError
from rla.llm.base import UnusableReply


def told(error: Exception) -> Exception:
    """As the other process has it."""
    arrived: Exception = pickle.loads(pickle.dumps(as_told(error)))
    return arrived


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
