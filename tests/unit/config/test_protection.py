"""What the engine's precision decides, and what the params file keeps to itself."""

from __future__ import annotations

from typing import Any

import pytest

from rla.config.load import config_of
from rla.config.training import TrainConfig, protected
from tests.unit.config.published_runs import ON

OFF = ("sampler", 0.0)


def decided(train: dict[str, Any], *, dtype: str) -> tuple[str, float | None]:
    data = {"generator": {"dtype": dtype}, "train_policy": train}
    found = config_of(data, where="params", params_of=None).train_policy
    return found.old, found.dual_clip


@pytest.mark.parametrize(
    ("train", "dtype", "expected"),
    [
        ({}, "bfloat16", ON),
        ({}, "float32", OFF),
        ({"old": "sampler"}, "bfloat16", ("sampler", 3.0)),
        ({"old": "trainer", "dual_clip": 0}, "bfloat16", ("trainer", 0.0)),
        ({"old": "reply_tis", "dual_clip": 5}, "bfloat16", ("reply_tis", 5.0)),
        ({"old": "token_tis"}, "float32", ("token_tis", 0.0)),
        ({"loss": "cispo", "clip_high": 5.0}, "bfloat16", ("token_tis", 0.0)),  # cispo has no second bound
        ({"clip_high": 4.0}, "bfloat16", ("token_tis", 0.0)),  # which would lie below the first
    ],
)
def test_what_is_left_open_follows_the_engine(train: dict[str, Any], dtype: str, expected: tuple[str, float]) -> None:
    assert decided(train, dtype=dtype) == expected


def test_a_decided_config_stays_as_it_is() -> None:
    once = protected(TrainConfig(), half=True)
    assert protected(once, half=False) == once != TrainConfig()


@pytest.mark.parametrize(
    ("old", "unit"), [("sampler", None), ("trainer", None), ("token_tis", "token"), ("reply_tis", "reply")]
)
def test_the_sampler_is_corrected_for_by_token_or_by_reply(old: Any, unit: str | None) -> None:
    assert TrainConfig(old=old).correction == unit


def test_the_trainer_scores_only_if_the_ratio_starts_from_it() -> None:
    kinds: Any = ("auto", "sampler", "trainer", "token_tis", "reply_tis")
    assert [TrainConfig(old=old).rescored for old in kinds] == [False, False, True, True, True]
