"""The parameters that the published runs have, and bounds of shaping."""

from __future__ import annotations

import pytest

from rla.config import Config
from rla.errors import UserError
from tests.unit.builders import configured
from tests.unit.config.published_runs import assert_published


def test_the_published_loop_leaves_out_what_has_no_advantage() -> None:
    assert {stage.zero_advantage for stage in (Config().train_policy, Config().train_rm)} == {"drop"}


def test_a_penalty_of_length_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(UserError, match=r"credit.shaping.overlong is \[9, 8\]; set it to \[low, high\]"):
        configured("credit.shaping.overlong=[9, 8]")


def test_the_published_run_has_the_papers_models_and_is_protected() -> None:
    assert_published("alfworld-qwen2.5-7b", reward="Qwen/Qwen2.5-14B-Instruct", votes=3)
