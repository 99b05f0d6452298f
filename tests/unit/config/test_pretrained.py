"""What the params file leaves open follows from the model: learning rates, the warm start, the reward model's start."""

from __future__ import annotations

from typing import Any

import pytest

from rla.config import Config
from rla.config.load import config_of
from rla.errors import UserError

PRETRAINED = {"policy": "some/model"}
LORA = {"lora": {"rank": 8}}


def read(**params: Any) -> Config:
    return config_of(params, where="params", params_of=None)


def rates(config: Config) -> tuple[float, float, float, float]:
    """Of the warm start and of the loop: policy, reward model, policy, reward model."""
    warm = config.warm_start
    assert (warm.expert.lr, warm.calibration.lr) == (warm.policy.lr, warm.reward.lr)
    return warm.policy.rate, warm.reward.rate, config.train_policy.rate, config.train_rm.rate


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, (3e-3, 3e-3, 1e-6, 1e-6)),
        ({"model": PRETRAINED}, (2e-5, 2e-5, 1e-6, 1e-6)),
        ({"model": PRETRAINED, "train_policy": LORA}, (2e-4, 2e-5, 4e-5, 1e-6)),
        ({"model": PRETRAINED, "train_rm": LORA}, (2e-5, 2e-4, 1e-6, 4e-5)),
        ({"model": {**PRETRAINED, "reward": "init"}}, (2e-5, 3e-3, 1e-6, 1e-6)),
        (
            {"model": {**PRETRAINED, "reward": "init"}, "warm_start": {"reward_from_policy": True}},
            (2e-5, 2e-5, 1e-6, 1e-6),
        ),
        ({"train_policy": LORA, "train_rm": LORA}, (3e-3, 3e-3, 4e-5, 4e-5)),  # of a new model all weights are taught
    ],
)
def test_rates_follow_from_what_trains(params: dict[str, Any], expected: tuple[float, ...]) -> None:
    assert rates(read(**params)) == expected


def test_a_rate_of_the_file_is_kept() -> None:
    own = {"expert": {"lr": 0.5}, "policy": {"lr": 0.5}, "reward": {"lr": 0.25}, "calibration": {"lr": 0.25}}
    found = read(model=PRETRAINED, warm_start=own, train_policy={"lr": 0.125, **LORA}, train_rm={"lr": 0.0})
    assert rates(found) == (0.5, 0.25, 0.125, 0.0)


def test_further_trainings_have_the_settings_of_those_beside_them() -> None:
    policy = {"batch_size": 8, "noise": 0.5, "observed": 0.0, "tokens_per_pass": 64}
    reward = {"batch_size": 4, "noise": 0.1}
    warm = read(
        warm_start={"policy": policy, "expert": {"steps": 3}, "reward": reward, "calibration": {"steps": 2}}
    ).warm_start
    expert, judge, calibrated = (warm.settings(name) for name in ("expert", "reward", "calibration"))
    assert (expert.steps, expert.batch_size, expert.noise, expert.observed) == (3, 8, 0.0, 0.0)
    assert (judge.batch_size, judge.noise, judge.observed, judge.tokens_per_pass) == (4, 0.1, 0.3, 64)
    assert (calibrated.steps, calibrated.batch_size, calibrated.noise) == (2, 4, 0.0)


@pytest.mark.parametrize(
    ("params", "enabled", "reward"),
    [
        ({}, True, "init"),
        ({"model": PRETRAINED}, False, "some/model"),
        ({"model": {"reward": "some/judge"}}, True, "some/judge"),
        ({"model": {**PRETRAINED, "reward": "init"}}, False, "init"),
        ({"model": PRETRAINED, "warm_start": {"enabled": True}}, True, "some/model"),
        ({"warm_start": {"enabled": False}}, False, "init"),
    ],
)
def test_a_model_that_exists_has_no_warm_start_unless_asked(params: dict[str, Any], enabled: bool, reward: str) -> None:
    found = read(**params)
    assert (found.warm_start.enabled, found.model.reward) == (enabled, reward)


def test_an_adapter_that_was_taught_is_not_drawn_back_to_the_base() -> None:
    taught = {"model": PRETRAINED, "warm_start": {"enabled": True}}
    with pytest.raises(UserError, match=r"train_policy\.kl_reference: initial is the base.*set .* to previous, or"):
        read(**taught, train_policy=LORA)
    for found in ({"kl_coef": 0.0}, {"kl_reference": "previous"}):
        read(**taught, train_policy={**LORA, **found})
    read(model=PRETRAINED, train_policy=LORA)


@pytest.mark.parametrize("other", [{"rank": 4}, {"rank": 8, "alpha": 8.0}])
def test_a_reward_model_goes_on_with_the_same_adapter(other: dict[str, Any]) -> None:
    sections = {"train_policy": {"lora": {"rank": 8, "alpha": 32.0}}, "train_rm": {"lora": other}}
    with pytest.raises(UserError, match=r"set train_rm\.lora to the values of train_policy\.lora"):
        read(**sections, warm_start={"reward_from_policy": True})
    read(**sections)


def test_one_vote_a_step_is_not_compared_with_the_others_of_its_step() -> None:
    with pytest.raises(UserError, match=r"judge\.votes is 1.*set that to task, judge\.votes to 2 or more"):
        read(judge={"votes": 1})
    read(judge={"votes": 1}, credit={"reward_model_normalise": "task"})
    read(judge={"votes": 1}, train_rm={"enabled": False})
    read(judge={"votes": 1, "enabled": False})
    read(judge={"votes": 2})
