"""For each warning a run that provokes it: real stages, with parameters or a model that make this go wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from rla.config.sections import GuardName
from tests.integration.conftest import Rla, stages
from tests.integration.pipelines import PARAMS

# Scripted replies win some episodes in thirty steps.
WINNING = (
    PARAMS.replace("max_steps: 6, omit", "max_steps: 30, omit")
    .replace("rollouts_per_task: 4}", "rollouts_per_task: 8}")
    .replace("context: 512", "context: 2048")
)
UNTAUGHT = ("--set", "generator.backend=transformers")  # a model of random weights
PLAYED = ("rollout", "score-steps", "validate-tasks", "compute-rewards")


def names(printed: str) -> set[str]:
    return set(re.findall(r"^warning \(([a-z-]+)\): .+; .+", printed, re.MULTILINE))


def warnings_after(rla: Rla, stage: str, *options: str) -> set[str]:
    code, said, error = rla(stage, "--run", "r", *options)
    assert code == 0, error
    return names(said)


def test_the_shortest_run_of_scripted_replies_wins_nothing(rla: Rla) -> None:
    stages(rla, "rollout", "score-steps", "validate-tasks")
    assert "no-mixed-group" in warnings_after(rla, "compute-rewards")


def test_replies_of_an_untaught_model_hold_neither_action_nor_vote(rla: Rla) -> None:
    free = (
        *UNTAUGHT,
        "--set",
        "policy.decoding=free",
        "--set",
        "judge.decoding=free",
        "--set",
        "guards.stop=[]",
    )
    assert warnings_after(rla, "rollout", *free) == {"no-action", "cut-episodes"}
    assert warnings_after(rla, "score-steps", *free) == {"unreadable-votes"}


def test_a_judge_that_always_says_the_same(rla: Rla, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(WINNING)
    stages(rla, "rollout")
    greedy = (*UNTAUGHT, "--set", "judge.temperature=0.01")
    assert warnings_after(rla, "score-steps", *greedy) == set()
    assert warnings_after(rla, "validate-tasks", *greedy) == set()
    assert warnings_after(rla, "compute-rewards", *greedy) == {"one-sided-judge", "useless-judge"}


def test_a_policy_without_choice_and_a_learning_rate_that_is_far_too_high(rla: Rla, tmp_path: Path) -> None:
    one_vote = WINNING.replace("judge: {", "judge: {votes: 1, ").replace("train_rm: {", "train_rm: {enabled: false, ")
    (tmp_path / "params.yaml").write_text(one_vote)
    stages(rla, *PLAYED, "train-policy", "train-rm", "adapt-env")
    cold = ("--iteration", "2", "--set", "policy.temperature=0.01")
    for stage in PLAYED:
        assert rla(stage, "--run", "r", *cold)[0] == 0
    # scripted replies are drawn evenly, whatever the temperature
    assert {"entropy-collapse", "sampler-gap"} <= warnings_after(rla, "train-policy", *cold)
    far_too_high = ("--set", "train_policy.lr=1.0", "--overwrite")
    assert "exploding-update" in warnings_after(rla, "train-policy", *cold, *far_too_high)


def test_edits_that_an_untaught_model_proposes(rla: Rla, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS.replace("context: 512", "context: 3072"))
    stages(rla, "rollout", "score-steps", "validate-tasks")
    model = ("--set", "adaptation.proposer=llm", *UNTAUGHT)
    short = ("--set", "adaptation.llm.max_tokens=24")
    assert warnings_after(rla, "adapt-env", *model, *short) == {"refused-proposals"}


@pytest.mark.parametrize("guard", [name for name in get_args(GuardName) if name != "first-replies"])
def test_each_guard_is_provoked_above(guard: str) -> None:
    assert f'"{guard}"' in Path(__file__).read_text()
