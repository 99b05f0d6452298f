"""From rows of shards to rewards and metrics: the example that `test_example` works out by hand, as data frames."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import polars as pl
import pytest
from rla_programs.coding.crediting import CodingRule
from rla_programs.coding.probing import reference_row

from rla.config.sections import CreditConfig

GIVEN = ["11111", "11111", "11010", "01000"]
WRITTEN = ["1110", "1110", "1101", "1000"]  # test 4 is none
BAND = CreditConfig(step_weight=0.5, policy_band=(0.2, 0.8))


def episodes(given: list[str], *, task: str = "q", status: str = "active") -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "trajectory_id": f"{task}{number}",
                "task_id": task,
                "rollout": number,
                "status": status,
                "outcome": 1 if "0" not in row else -1,
                "n_steps": 1,
                "final_observation": f"tests: {row}",
            }
            for number, row in enumerate(given)
        ]
    )


def judgements(written: list[str], *, task: str = "q", tests: int = 5, reference: str | None = None) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    named = [(f"{task}{number}", row) for number, row in enumerate(written)]
    for name, row in [*named, *([(reference_row(task), reference)] if reference else [])]:
        for test in range(tests):
            score = None if test >= len(row) else 1 if row[test] == "1" else -1
            tokens = 3 if name == f"{task}0" else 0
            rows.append(
                {"trajectory_id": name, "task_id": task, "step": 0, "judgement": test, "score": score, "tokens": tokens}
            )
    schema = {"trajectory_id": pl.String, "task_id": pl.String, "step": pl.Int32, "judgement": pl.Int32}
    return pl.DataFrame(rows, schema={**schema, "score": pl.Int8, "tokens": pl.UInt32})


def test_rewards_of_the_example() -> None:
    policy, tests = CodingRule().rewards(episodes(GIVEN), judgements(WRITTEN), BAND)
    assert policy["reward"].to_list() == pytest.approx([1.5, 1.5, 0.6 + 1 / 3, 0.2 + 1 / 6])
    assert policy["mean_score"].to_list() == [0.5, 0.5, 0.5, -0.5]
    assert policy["outcome"].to_list() == [1, 1, -1, -1]
    assert tests["trajectory_id"].unique().to_list() == ["q0"]  # where the tokens are
    assert tests["reward"].to_list() == [0, 1, 2, -1, -3]
    assert tests["score"].to_list() == [1, 1, 1, -1, None]
    assert tests["advantage"].to_list() == pytest.approx([x / sqrt(2.96) for x in (0.2, 1.2, 2.2, -0.8, -2.8)])


def test_without_lambda_the_share_of_tests_is_all_that_counts() -> None:
    for config in (replace(BAND, step_weight=0.0), replace(BAND, estimator="outcome")):
        policy, _ = CodingRule().rewards(episodes(GIVEN), judgements(WRITTEN), config)
        assert policy["reward"].to_list() == [1.0, 1.0, 0.6, 0.2]
        assert policy["advantage"].to_list() == pytest.approx([x / sqrt(0.11) for x in (0.3, 0.3, -0.1, -0.5)])


@pytest.mark.parametrize("given", [["11", "11", "11", "11", "11", "10"], ["10", "01", "00"]])
def test_a_task_outside_of_the_band_trains_neither(given: list[str]) -> None:
    policy, tests = CodingRule().rewards(episodes(given), judgements(["1"] * len(given), tests=1), BAND)
    assert policy["advantage"].to_list() == [0.0] * len(given)
    assert tests.is_empty()


def test_no_tests_and_no_programs_are_no_error() -> None:
    none = judgements([])
    policy, tests = CodingRule().rewards(episodes(GIVEN), none, BAND)
    assert policy["reward"].to_list() == [1.0, 1.0, 0.6, 0.2] and tests.is_empty()
    silent = episodes(GIVEN).with_columns(n_steps=0, final_observation=pl.lit("tests: 11111"))
    assert all(rows.is_empty() for rows in CodingRule().rewards(silent, none, BAND))
    assert CodingRule().metrics(silent, none)["pass_at_1"] is None


def test_metrics_of_the_example() -> None:
    found = CodingRule().metrics(episodes(GIVEN), judgements(WRITTEN, reference="1110"))
    expected = {"pass_at_1": 0.5, "pass_at_2": 5 / 6, "best_of_4": 2 / 3, "ut_accuracy": 0.6, "detect": 0.2}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert (found["pass_at_1_trials"], found["ut_accuracy_trials"], found["detect_tasks"]) == (4, 5, 1)
    shares = (found["written_tests"], found["unparsable_tests"], found["tests_passed"])
    assert shares == pytest.approx((5, 0.2, 0.7))


def test_a_reference_judges_tests_where_no_program_is_right() -> None:
    lost = episodes(["00", "10"])
    assert CodingRule().metrics(lost, judgements(["10", "11"], tests=2))["ut_accuracy"] is None
    assert CodingRule().metrics(lost, judgements(["10", "11"], tests=2, reference="10"))["ut_accuracy"] == 0.5


def test_metrics_are_of_active_tasks() -> None:
    both = pl.concat([episodes(["11", "10"]), episodes(["11"], task="p", status="pending")])
    assert CodingRule().metrics(both, judgements([]))["pass_at_1_tasks"] == 1
