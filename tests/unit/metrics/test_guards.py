"""Each guard speaks of the figures that it is about, at its limit, and is silent about good or missing ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from rla.config import Config
from rla.config.sections import GuardName
from rla.metrics.guards import warned
from tests.unit.builders import configured

GOOD: dict[str, Any] = {
    "iteration": 3,
    "rollout_episodes": 100,
    "rollout_steps": 1000,
    "rollout_invalid_actions": 499,
    "rollout_context_stops": 9,
    "rollout_truncated": 99,
    "judged_judgements": 3000,
    "judged_unparsable": 299,
    "one_sided_tasks": 0.9,
    "p_plus": 0.1,
    "p_minus": 0.95,
    "mu": 1.05,
    "policy_entropy": 0.081,
    "policy_approx_kl": 0.1,
    "policy_ratio_max": 20.0,
    "policy_sampler_gap_mean": 0.05,
    "rm_approx_kl": -0.01,
    "rm_ratio_max": 2.0,
    "rm_sampler_gap_mean": 0.0,
    "tasks_proposed": 8,
    "tasks_valid": 1,
}
FIRST = GOOD | {"iteration": 1, "policy_entropy": 0.8}

SERVED = ("judge.server.url=http://127.0.0.1/v1", "judge.server.model=judge")
HALF = ("generator.dtype=bfloat16", "generator.backend=vllm")

BAD: list[tuple[str, str, dict[str, Any], str]] = [
    ("no-action", "rollout", {"rollout_invalid_actions": 500}, "50% of the policy's replies hold no action"),
    ("cut-episodes", "rollout", {"rollout_context_stops": 10}, "10% of the episodes"),
    ("cut-episodes", "rollout", {"rollout_truncated": 100}, "10% of the policy's replies were cut"),
    ("unreadable-votes", "score-steps", {"judged_unparsable": 300}, "10% of the votes"),
    ("unreadable-votes", "score-steps", {"judged_failed": 2}, "10% of the votes could not be read or did not come"),
    ("no-mixed-group", "compute-rewards", {"one_sided_tasks": 1.0}, "no task was both won and lost"),
    ("one-sided-judge", "compute-rewards", {"p_plus": 0.07}, "only 7% of the votes on won episodes"),
    ("one-sided-judge", "compute-rewards", {"p_minus": 0.0}, "calls nearly every step good"),
    ("useless-judge", "compute-rewards", {"mu": 1.0}, "mu is 1.00"),
    ("entropy-collapse", "train-policy", {"policy_entropy": 0.07}, "fell to 0.07 from 0.8 in iteration 1"),
    ("exploding-update", "train-policy", {"policy_approx_kl": 0.2}, "KL of 0.2 nats"),
    ("exploding-update", "train-policy", {"policy_ratio_max": 55.0}, "55 times as probable"),
    ("exploding-update", "train-rm", {"rm_approx_kl": 0.3}, "moved the reward model"),
    ("sampler-gap", "train-policy", {"policy_sampler_gap_mean": 0.06}, "differ by 0.06 nats"),
    ("sampler-gap", "train-rm", {"rm_sampler_gap_mean": 0.07}, "about the reward model"),
    ("refused-proposals", "adapt-env", {"tasks_valid": 0}, "none of 8 proposed tasks is valid"),
]


def test_good_figures_and_missing_ones_say_nothing() -> None:
    assert list(warned(GOOD, FIRST, Config())) == []
    assert list(warned({"iteration": 3}, {"iteration": 1}, Config())) == []
    nothing = {"rollout_steps": 0, "judged_judgements": 0, "mu": None, "p_plus": None}
    assert list(warned(GOOD | nothing, FIRST, Config())) == []


@pytest.mark.parametrize(("name", "stage", "changes", "said"), BAD)
def test_a_guard_speaks_at_its_limit(name: str, stage: str, changes: dict[str, Any], said: str) -> None:
    (found,) = warned(GOOD | changes, FIRST, Config())
    assert (found.guard, found.iteration) == (name, 3) and said in found.said
    assert [one.guard for one in warned(GOOD | changes, FIRST, Config(), stage=stage)] == [name]
    assert list(warned(GOOD | changes, FIRST, Config(), stage="init-model")) == []


# What is seen, the run, and what the warning says and does not say.
REMEDIES: list[tuple[dict[str, Any], tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = [
    ({"rollout_invalid_actions": 900}, ("policy.reply=index",), ("policy.reply, which is index",), ("cut",)),
    ({"rollout_invalid_actions": 900}, ("policy.decoding=admissible",), ("docs/guide/episodes.md",), ("policy.reply",)),
    ({"rollout_invalid_actions": 900, "rollout_truncated": 800}, (), ("raise policy.max_tokens, which is 512",), ()),
    ({"rollout_context_stops": 50}, (), ("raise generator.context", "policy.history: window"), ("raise policy.max",)),
    ({"rollout_context_stops": 50}, ("policy.history=window",), ("raise generator.context",), ("policy.history",)),
    ({"judged_unparsable": 900}, (), ("judge.prompt, which is plain",), ("max_tokens",)),
    ({"judged_unparsable": 900, "judged_truncated": 800}, (), ("raise judge.max_tokens, which is 1024",), ("prompt",)),
    ({"judged_failed": 900}, SERVED, ("judge.server",), ("judge.max_tokens",)),
    ({"p_plus": 0.01}, (), ("credit.reward_model_balanced",), ("train_rm.max_samples",)),
    ({"p_plus": 0.01}, ("train_rm.max_samples=9",), ("train_rm.max_samples",), ()),
    ({"p_plus": 0.01}, ("credit.reward_model_balanced=true",), ("warm_start.reward",), ("balanced",)),
    ({"p_plus": 0.01}, SERVED, ("judge.server.model",), ("credit.", "train_rm")),
    ({"mu": 0.9}, ("credit.step_weight=0",), ("warm_start.reward",), ("step_weight",)),
    ({"mu": 0.9}, ("credit.estimator=outcome", "model.reward=some/model"), ("model.reward",), ("step_weight",)),
    ({"rm_approx_kl": 0.3}, (), ("lower train_rm.lr", "clip_low"), ("epochs", "train_policy")),
    ({"policy_approx_kl": 0.3}, ("train_policy.epochs=2",), ("lower train_policy.epochs",), ()),
    ({"policy_sampler_gap_mean": 0.1}, (), ("train_policy.old: token_tis",), ("dtype",)),
    ({"policy_sampler_gap_mean": 0.1}, HALF, ("generator.dtype: float32",), ("old:",)),
    ({"mu": 0.9}, ("credit.estimator=integrated",), ("credit.step_weight",), ()),
    *(({"mu": 0.9}, (f"credit.estimator={name}",), (), ("step_weight",)) for name in ("outcome", "step", "anchor")),
    ({"tasks_valid": 0}, (), ("adaptation.proposals_per_task",), ("proposer",)),
    ({"tasks_valid": 0}, ("adaptation.proposer=llm",), ("adaptation.llm.max_tokens, which is 512",), ()),
]


@pytest.mark.parametrize(("changes", "run", "named", "silent"), REMEDIES)
def test_a_remedy_names_keys_that_have_an_effect_in_this_run(
    changes: dict[str, Any], run: tuple[str, ...], named: tuple[str, ...], silent: tuple[str, ...]
) -> None:
    found = next(warned(GOOD | changes, FIRST, configured(*run)))
    assert all(key in found.remedy for key in named), found
    assert not any(key in found.remedy for key in silent), found


def test_every_guard_is_provoked_here_and_documented() -> None:
    names = {name for name, *_ in BAD}
    assert names == set(get_args(GuardName))
    page = (Path(__file__).parents[3] / "docs" / "guide" / "warnings.md").read_text()
    for name in names:
        assert f"## `{name}`" in page
