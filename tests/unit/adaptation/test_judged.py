"""Which episodes are judged once outcomes and verdicts are known, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from rla.adaptation.selection import trains_a_model, wanted_episodes
from rla.config.sections import CreditConfig

CREDIT = CreditConfig()  # the policy learns from 0 < accuracy < 1, the reward model from 0.2 to 0.8


def played(**tasks: str) -> list[dict[str, Any]]:
    """Rows by task: `+` is an episode that was won, `-` one that was lost, `!` one that the environment broke."""
    return [
        {
            "task_id": task,
            "trajectory_id": f"{task}{number}",
            "outcome": 1 if sign == "+" else -1,
            "stop_reason": "env_error" if sign == "!" else "max_steps",
        }
        for task, signs in tasks.items()
        for number, sign in enumerate(signs)
    ]


def wanted(rows: list[dict[str, Any]], **changes: Any) -> list[str]:
    given: dict[str, Any] = {
        "rejected": (),
        "credit": CREDIT,
        "criticised": (),
        "seed": 1,
        "whole": False,
    }
    return sorted(wanted_episodes(rows, **(given | changes)))


def test_unanimous_and_rejected_tasks_are_left_out() -> None:
    rows = played(a="++--", b="++++", c="----", d="+--+")
    assert wanted(rows, rejected={"d"}) == ["a0", "a1", "a2", "a3"]


def test_an_episode_that_the_environment_broke_is_nobodys() -> None:
    assert wanted(played(a="+-!", b="++!", c="!!")) == ["a0", "a1"]


def test_the_critic_reads_the_failures_of_what_becomes_easier() -> None:
    rows = played(b="++++", c="---", d="----", e="+---------")
    alone = {"credit": CreditConfig(estimator="outcome")}  # no policy reads judgements of the one that was won once
    assert wanted(rows, criticised={"c"}, **alone) == ["c0", "c1", "c2"]
    assert wanted(rows, criticised={"e"}, **alone) == [f"e{number}" for number in range(1, 10)]
    assert wanted(rows, criticised={"e"}, whole=True, **alone) == [f"e{number}" for number in range(10)]


def test_a_share_of_the_others_is_judged_whole_by_the_seed() -> None:
    rows = played(**{f"t{number}": "++" for number in range(400)})
    found = wanted(rows)
    assert 20 <= len(found) / 2 <= 60
    assert {name[:-1] for name in found if name.endswith("0")} == {name[:-1] for name in found if name.endswith("1")}
    assert found == wanted(rows) != wanted(rows, seed=2)


@pytest.mark.parametrize(
    ("credit", "accuracies"),
    [
        (CreditConfig(), (0.1, 0.2, 0.9)),
        (CreditConfig(policy_band=(0.2, 0.8)), (0.2, 0.5, 0.8)),
        (CreditConfig(policy_band=(-1.0, 2.0)), (0.0, 0.5, 1.0)),
        (CreditConfig(estimator="outcome"), (0.2, 0.8)),
        (CreditConfig(estimator="anchor"), (0.2, 0.8)),
        (CreditConfig(step_weight=0.0), (0.2, 0.8)),
        (CreditConfig(estimator="step"), (0.0, 0.5, 1.0)),
        (CreditConfig(reward_model_band=(0.0, 1.0)), (0.0, 1.0)),
    ],
)
def test_what_trains_a_model(credit: CreditConfig, accuracies: tuple[float, ...]) -> None:
    assert all(trains_a_model(accuracy, credit) for accuracy in accuracies)


@pytest.mark.parametrize(
    ("credit", "accuracies"),
    [
        (CreditConfig(), (0.0, 1.0)),
        (CreditConfig(policy_band=(0.2, 0.8)), (0.0, 0.1, 0.9)),
        (CreditConfig(estimator="outcome"), (0.1, 0.9)),
        (CreditConfig(step_weight=0.0), (0.1, 0.9)),
    ],
)
def test_what_trains_none(credit: CreditConfig, accuracies: tuple[float, ...]) -> None:
    assert not any(trains_a_model(accuracy, credit) for accuracy in accuracies)
