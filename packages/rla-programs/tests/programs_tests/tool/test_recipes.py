"""The parameters of GRPO-T, TCR and SCR as the guide has them, and those of DemyAgent's published run."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from rla.config import Config
from rla.config.load import config_of
from rla.envs.registry import load_config
from rla.pipeline.plan import packaged_files
from rla.store.layout import resource

FENCE = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


def recipe(name: str) -> Config:
    """What the guide says all recipes have in common, with what it says of this one."""
    text = (resource("docs") / "guide/grpo-tcr.md").read_text()
    common, t, tcr, scr = (yaml.safe_load(found) for found in FENCE.findall(text))
    for section, keys in {"T": t, "TCR": tcr, "SCR": scr}[name].items():
        for key, value in keys.items():
            said = common[section].get(key)
            common[section][key] = said | value if isinstance(said, dict) else value
    return config_of(common, where=name, params_of=None)


# overlong, ratio, aggregation, clip_low, clip_high, kl_coef
RECIPES: dict[str, tuple[Any, ...]] = {
    "T": ((0, 0), "token", "token", 0.2, 0.2, 0.001),
    "TCR": ((16384, 20480), "token", "token", 0.2, 0.28, 0.0),
    "SCR": ((16384, 20480), "segment", "trajectory", 3e-4, 4e-4, 0.0),
}


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipes_of_the_guide(name: str) -> None:
    config = recipe(name)
    train, shaping = config.train_policy, config.credit.shaping
    assert RECIPES[name] == (
        shaping.overlong,
        train.ratio,
        train.aggregation,
        train.clip_low,
        train.clip_high,
        train.kl_coef,
    )
    assert (shaping.tool_bonus, shaping.spread, train.dual_clip) == ("wrong", "sample", 10.0)
    assert train.zero_advantage == "count_groups"  # as verl does


def test_the_published_run_is_grpo_tcr() -> None:
    config = load_config(packaged_files()["demyagent-qwen3-4b"])
    train, credit = config.train_policy, config.credit
    tcr = recipe("TCR")
    assert credit.shaping.overlong == tcr.credit.shaping.overlong
    assert credit.shaping.overlong[1] == config.policy.response_tokens
    assert (train.ratio, train.aggregation, train.dual_clip) == (
        tcr.train_policy.ratio,
        tcr.train_policy.aggregation,
        tcr.train_policy.dual_clip,
    )
    assert train.old == "trainer"  # without the correction that bf16 else brings
    assert credit.policy_band == (-1.0, 2.0)
    assert train.zero_advantage == "count_groups"
    taught = config.warm_start.policy  # section 2.3 of the reference
    assert (taught.epochs, taught.batch_size, taught.lr, taught.beta2, taught.max_length) == (5, 32, 1e-5, 0.95, 32768)
    rollout = config.rollout
    assert rollout.tasks_per_iteration * rollout.rollouts_per_task == 4 * train.sequences_per_update
