"""Parameters of the environment `coding`, and what guards say of a run of it."""

from __future__ import annotations

import pytest

from rla.config.load import config_digest
from rla.envs.registry import installed_list, load_config
from rla.errors import UserError
from rla.metrics.guards import warned
from rla.pipeline.plan import packaged_files
from tests.unit.builders import configured
from tests.unit.config.published_runs import assert_published
from tests.unit.metrics.test_guards import FIRST, GOOD
from tests.unit.rollouts.test_first_replies import judged


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("warm_start.alike=2", r"warm_start\.alike is 2; env\.name: coding needs 0"),
        ("env.own.execution.backend=sandboxfusion", r"set env\.own\.execution\.server to the base URL of a Sandbox"),
        ("env.own.execution.wall_s=.nan", r"env\.own\.execution\.wall_s is nan; expected a finite number"),
        ("env.own.tests=0", r"env\.own\.tests is 0; it must be 1 or more"),
        ("env.own.engine=fast", r"unknown key env\.own\.engine"),
    ],
)
def test_parameters_that_cannot_work_are_refused(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        configured(override, env="coding")


def test_keys_that_are_without_effect_do_not_enter_a_digest() -> None:
    def digest(*overrides: str) -> str:
        return config_digest(configured(*overrides, env="coding"), ["env"])

    assert digest() != digest("env.own.tests=3")
    assert digest() != digest("env.own.execution.wall_s=1")
    assert digest() == digest("env.own.execution.workers=3")


def test_it_is_listed_with_its_abilities() -> None:
    (found,) = [one for one in installed_list() if one.name == "coding"]
    assert {"Probes", "Shares", "Checks"} <= set(found.abilities)


def test_coding_runs_pay_programs_by_the_given_tests_alone() -> None:
    """Section 3.2.7 and Algorithm 2, line 17: the policy's reward is the pass rate over the given unit tests."""
    files = [path for path in packaged_files().values() if "\n  name: coding\n" in path.read_text()]
    weights = {path.name: load_config(path).credit.step_weight for path in files}
    assert weights == {"coding-qwen2.5-7b.yaml": 0.0, "coding-tiny.yaml": 0.0}


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"p_plus": 0.05}, "only 5% of the tests accept right programs"),
        ({"p_minus": 0.05}, "wrong programs pass 95% of the tests"),
        ({"mu": 0.9}, "mu is 0.90: right programs pass no more of the tests than wrong ones"),
    ],
)
def test_of_a_reward_model_that_writes_tests_warnings_speak_of_tests(figures: dict[str, float], said: str) -> None:
    coding = configured("train_rm.max_samples=100", env="coding")
    (found,) = warned(GOOD | {"ut_accuracy": 0.4} | figures, FIRST, coding)
    assert found.said == said
    assert "balanced" not in found.remedy and "votes" not in found.remedy


def test_commands_are_advised_only_if_the_environment_offers_them() -> None:
    (found,) = warned(GOOD | {"rollout_invalid_actions": 900}, FIRST, configured(env="coding"))
    assert "if the environment offers commands, set policy.reply: text and policy.decoding: admissible" in found.remedy


def test_a_reward_model_whose_tests_cannot_be_read() -> None:
    (warning,) = judged("a test", env="coding")
    assert "none of the first 2 tests can be read" in warning


def test_the_published_run_has_the_papers_models_and_is_protected() -> None:
    assert_published("coding-qwen2.5-7b", reward="Qwen/Qwen2.5-14B-Instruct", votes=32)
