"""What the engine's precision decides, and what the params file keeps to itself."""

from __future__ import annotations

from typing import Any

import pytest

from rla.config.load import config_of
from rla.config.training import TrainConfig, protected
from rla.errors import UserError
from tests.unit.config.published_runs import ON

OFF = ("sampler", "none", 0.0)


def decided(train: dict[str, Any], *, dtype: str) -> tuple[str, str, float | None]:
    data = {"generator": {"dtype": dtype}, "train_policy": train}
    found = config_of(data, where="params", params_of=None).train_policy
    return found.old, found.correction, found.dual_clip


@pytest.mark.parametrize(
    ("train", "dtype", "expected"),
    [
        ({}, "bfloat16", ON),
        ({}, "float32", OFF),
        ({"old": "sampler"}, "bfloat16", ("sampler", "none", 3.0)),  # a correction needs the trainer's
        ({"old": "sampler", "dual_clip": 0}, "bfloat16", OFF),
        ({"correction": "reply", "dual_clip": 5}, "bfloat16", ("trainer", "reply", 5.0)),
        ({"correction": "token"}, "float32", ("trainer", "token", 0.0)),
        ({"mask_high": 5.0}, "float32", ("trainer", "none", 0.0)),
        ({"loss": "cispo", "clip_high": 5.0}, "bfloat16", ("trainer", "token", 0.0)),  # cispo has no second bound
        ({"clip_high": 4.0}, "bfloat16", ("trainer", "token", 0.0)),  # which would lie below the first
    ],
)
def test_what_is_left_open_follows_the_engine(
    train: dict[str, Any], dtype: str, expected: tuple[str, str, float]
) -> None:
    assert decided(train, dtype=dtype) == expected


def test_a_decided_config_stays_as_it_is() -> None:
    once = protected(TrainConfig(), half=True)
    assert protected(once, half=False) == once != TrainConfig()


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"mask_low": 0.5, "old": "sampler"}, "set old: trainer"),
        ({"mask_low": 1.5}, "mask_low is 1.5; it must be 0 or more and below 1"),
        ({"mask_high": 0.5}, "mask_high is 0.5; it must be 0, or above 1"),
        ({"correction": "token", "old": "sampler"}, "set train_policy.old: trainer"),
    ],
)
def test_impossible_bounds_are_refused(train: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        decided(train, dtype="float32")
