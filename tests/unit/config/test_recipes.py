"""The parameters of GRPO-T, TCR and SCR as the guide has them, and those of the published runs."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from rla_programs.tool.params import ToolParams
from rla_study.ablation.design import merged_params

from rla.config import Config
from rla.config.load import config_of
from rla.envs.configured import load_config
from rla.errors import UserError
from rla.pipeline.params_files import packaged_files
from rla.store.resources import resource
from tests.unit.builders import configured

FENCE = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


def recipe(name: str) -> Config:
    """What the guide says all recipes have in common, with what it says of this one."""
    text = (resource("docs") / "guide/grpo-tcr.md").read_text()
    common, t, tcr, scr = (yaml.safe_load(found) for found in FENCE.findall(text))
    own = {"T": t, "TCR": tcr, "SCR": scr}[name]
    return config_of(merged_params(common, own), where=name, params_of=None)


# overlong_max, ratio, aggregation, clip_low, clip_high, kl_coef
RECIPES: dict[str, tuple[Any, ...]] = {
    "T": (0, "token", "token", 0.2, 0.2, 0.001),
    "TCR": (20480, "token", "token", 0.2, 0.28, 0.0),
    "SCR": (20480, "segment", "trajectory", 3e-4, 4e-4, 0.0),
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipes_of_the_guide(name: str) -> None:
    config = recipe(name)
    train, shaping = config.train_policy, config.credit.shaping
    assert RECIPES[name] == (
        shaping.overlong_max,
        train.ratio,
        train.aggregation,
        train.clip_low,
        train.clip_high,
        train.kl_coef,
    )
    assert (shaping.tool_bonus, shaping.spread, train.dual_clip) == ("wrong", "sample", 10.0)
    assert (train.zero_advantage, train.whole_groups) == ("count", True)  # as verl does


def test_the_published_run_is_grpo_tcr() -> None:
    read = yaml.safe_load(packaged_files()["demyagent-qwen3-4b"].read_text())
    config = config_of(read, where="published", params_of=lambda _: ToolParams)
    train, credit = config.train_policy, config.credit
    tcr = recipe("TCR")
    assert credit.shaping.overlong_max == tcr.credit.shaping.overlong_max == config.policy.response_tokens
    assert (train.ratio, train.aggregation, train.dual_clip) == (
        tcr.train_policy.ratio,
        tcr.train_policy.aggregation,
        tcr.train_policy.dual_clip,
    )
    assert (train.old, train.correction) == ("trainer", "none")  # without the correction that bf16 else brings
    assert (credit.policy_low, credit.policy_high) == (-1.0, 2.0)
    assert (train.zero_advantage, train.whole_groups) == ("count", True)
    taught = config.warm_start.policy  # section 2.3 of the reference
    assert (taught.epochs, taught.batch_size, taught.lr, taught.beta2, taught.max_length) == (5, 32, 1e-5, 0.95, 32768)
    rollout = config.rollout
    assert rollout.tasks_per_iteration * rollout.rollouts_per_task == 4 * train.sequences_per_update


def test_the_published_loop_leaves_out_what_has_no_advantage() -> None:
    assert {stage.zero_advantage for stage in (Config().train_policy, Config().train_rm)} == {"drop"}


def test_a_buffer_longer_than_the_bound_is_refused() -> None:
    with pytest.raises(UserError, match=r"overlong_buffer is 9, and it is a part of overlong_max"):
        configured("credit.shaping.overlong_max=8", "credit.shaping.overlong_buffer=9")
    assert configured("credit.shaping.overlong_buffer=9").credit.shaping.overlong_max == 0


def test_coding_runs_pay_programs_by_the_given_tests_alone() -> None:
    """Section 3.2.7 and Algorithm 2, line 17: the policy's reward is the pass rate over the given unit tests."""
    files = [path for path in packaged_files().values() if "\n  name: coding\n" in path.read_text()]
    weights = {path.name: load_config(path).credit.step_weight for path in files}
    assert weights == {"coding-qwen2.5-7b.yaml": 0.0, "coding-tiny.yaml": 0.0}


@pytest.mark.parametrize(
    ("name", "reward", "proposer", "votes"),
    [
        ("alfworld-qwen2.5-7b", "Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen3-4B", 3),
        ("coding-qwen2.5-7b", "Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen3-4B", 32),
        ("osworld-qwen3-vl-8b", "Qwen/Qwen3-VL-8B-Thinking", "Qwen/Qwen3-4B", 3),
    ],
)
def test_the_published_runs_have_the_papers_models(name: str, reward: str, proposer: str, votes: int) -> None:
    """Section 3.1.1."""
    config = load_config(packaged_files()[name])
    assert (config.model.reward, config.adaptation.llm.model, config.judge.votes) == (reward, proposer, votes)
