"""The parameters that the published runs have, and bounds of shaping."""

from __future__ import annotations

import pytest

from rla.config import Config
from rla.envs.configured import load_config
from rla.errors import UserError
from rla.pipeline.params_files import packaged_files
from tests.unit.builders import configured

# Pipeline -> reward model, model that proposes tasks, votes. Section 3.1.1.
PAPER = {
    "alfworld-qwen2.5-7b": ("Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen3-4B", 3),
    "coding-qwen2.5-7b": ("Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen3-4B", 32),
    "osworld-qwen3-vl-8b": ("Qwen/Qwen3-VL-8B-Thinking", "Qwen/Qwen3-4B", 3),
}


def test_the_published_loop_leaves_out_what_has_no_advantage() -> None:
    assert {stage.zero_advantage for stage in (Config().train_policy, Config().train_rm)} == {"drop"}


def test_a_buffer_longer_than_the_bound_is_refused() -> None:
    with pytest.raises(UserError, match=r"overlong_buffer is 9, and it is a part of overlong_max"):
        configured("credit.shaping.overlong_max=8", "credit.shaping.overlong_buffer=9")
    assert configured("credit.shaping.overlong_buffer=9").credit.shaping.overlong_max == 0


@pytest.mark.parametrize("name", sorted(PAPER.keys() & packaged_files().keys()))
def test_the_published_runs_have_the_papers_models(name: str) -> None:
    config = load_config(packaged_files()[name])
    assert (config.model.reward, config.adaptation.llm.model, config.judge.votes) == PAPER[name]
