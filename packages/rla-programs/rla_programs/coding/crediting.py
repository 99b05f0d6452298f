"""From the rows of an iteration to rewards and metrics: `rla.envs.protocols.RewardRule` by the formulas of `rewards`
and `evaluation`.

    given[j][i]     the verdict in the last observation of program j's episode
    written[j][k]   the score of judgement k in the row of program j: +1 passes, null if it is not a test
    reference[k]    the same, in the row of the trajectory `reference-<task id>`

The tokens of the K tests are in only one row of their task, and the judgements of that row train the reward model.
Episodes without a verdict (nothing was asked, or the sandbox failed) do not count as programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from rla.config.sections import CreditConfig
from rla.credit.estimators import POLICY_REWARDS, RM_REWARDS, in_schema
from rla.store.records import Status
from rla_programs.coding.evaluation import Metric, evaluate
from rla_programs.coding.probing import reference_row
from rla_programs.coding.rewards import (
    Executions,
    accuracy,
    consistent,
    policy_rewards,
    solved,
    standardise,
    trains,
    written_rewards,
)
from rla_programs.coding.service import passed

Scores = dict[str, list[int | None]]  # trajectory -> score of each judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The programs of one task: their trajectories, the tests they pass, and the row that holds the tests' tokens."""

    task_id: str
    trajectories: Sequence[str]
    executions: Executions
    sampled: str | None


class CodingRule:
    """Rewards of programs and of written tests, and quality metrics of both."""

    def rewards(
        self, episodes: pl.DataFrame, judgements: pl.DataFrame, config: CreditConfig
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """`credit.step_weight` is lambda (`estimator: outcome`: 0). A task whose accuracy is outside policy_band, or
        reward_model_band, does not train that model.
        """
        policy: list[dict[str, Any]] = []
        tests: list[dict[str, Any]] = []
        for examined in _examinations(episodes, judgements):
            policy += _program_rows(examined, config)
            tests += _test_rows(examined, config)
        return (
            in_schema(pl.DataFrame(policy, schema=POLICY_REWARDS), POLICY_REWARDS),
            in_schema(pl.DataFrame(tests, schema=RM_REWARDS), RM_REWARDS),
        )

    def metrics(self, episodes: pl.DataFrame, judgements: pl.DataFrame) -> dict[str, Any]:
        """pass@k and best of n for powers of two, UT accuracy and Detect: estimate, bounds, tasks and trials of each.

        Over active tasks only, like `success`.
        """
        active = episodes.filter(pl.col("status") == Status.ACTIVE.value)
        found = {one.task_id: one.executions for one in _examinations(active, judgements)}
        most = max((len(executions.given) for executions in found.values()), default=1)
        sizes = [size for size in (2**power for power in range(1, 12)) if size <= most]
        wrote = any(executions.parsed for executions in found.values())
        metrics = evaluate(found, k=sizes, n=sizes if wrote else ())
        return {
            name: value
            for key, metric in metrics.items()
            for name, value in _as_columns(key.replace("@", "_at_"), metric).items()
        } | parsing(found)


def _examinations(episodes: pl.DataFrame, judgements: pl.DataFrame) -> Iterator[Examined]:
    """One for each task that has a program, in order of task_id; programs in order of their rollouts."""
    scores, sampled = _scores_of(judgements)
    for task_id, group in sorted(episodes.group_by("task_id"), key=lambda entry: str(entry[0][0])):
        rows = group.sort("rollout", "trajectory_id").select("trajectory_id", "final_observation", "n_steps").rows()
        found = [(name, verdict) for name, text, steps in rows if steps and (verdict := passed(text)) is not None]
        if not found:
            continue
        written = [scores.get(name, []) for name, _ in found]
        count = len(written[0]) if all(len(row) == len(written[0]) for row in written) else 0
        reference = scores.get(reference_row(str(task_id[0])), [])
        known = bool(count) and len(reference) == count
        yield Examined(
            task_id=str(task_id[0]),
            trajectories=[name for name, _ in found],
            executions=Executions(
                given=[verdict for _, verdict in found],
                written=[[score == 1 for score in row[:count]] for row in written],
                parsed=[score is not None for score in written[0][:count]],
                reference=[score == 1 for score in reference] if known else None,
            ),
            sampled=sampled.get(str(task_id[0])) if count else None,
        )


def _scores_of(judgements: pl.DataFrame) -> tuple[Scores, dict[str, str]]:
    """The scores of each trajectory's judgements, and for each task the trajectory whose row holds the tokens."""
    scores: Scores = {}
    sampled: dict[str, str] = {}
    ordered = judgements.sort("trajectory_id", "judgement")
    for name, task_id, score, tokens in ordered.select("trajectory_id", "task_id", "score", "tokens").rows():
        scores.setdefault(name, []).append(score)
        if tokens:
            sampled.setdefault(task_id, name)
    return scores, sampled


def _program_rows(examined: Examined, config: CreditConfig) -> list[dict[str, Any]]:
    """Rows of `policy_rewards`; the advantage is 0 if the task's accuracy is outside the band."""
    executions = examined.executions
    weight = 0.0 if config.estimator == "outcome" else config.step_weight
    rewards = policy_rewards(executions, test_weight=weight)
    inside = trains(accuracy(executions), low=config.policy_band[0], high=config.policy_band[1])
    advantages = standardise(rewards) if inside else [0.0] * len(rewards)
    read = [number for number, parsed in enumerate(executions.parsed) if parsed]
    return [
        {
            "trajectory_id": name,
            "task_id": examined.task_id,
            "step": 0,
            "outcome": 1 if right else -1,
            "mean_score": sum(1 if row[test] else -1 for test in read) / len(read) if read else None,
            "reward": reward,
            "advantage": advantage,
        }
        for name, right, row, reward, advantage in zip(
            examined.trajectories, solved(executions), executions.written, rewards, advantages, strict=True
        )
    ]


def _test_rows(examined: Examined, config: CreditConfig) -> list[dict[str, Any]]:
    """Rows of `rm_rewards`: the judgements in the row with the tokens, for a task inside the band. The score says
    whether all right programs pass the test.
    """
    executions = examined.executions
    low, high = config.reward_model_band
    if examined.sampled is None or not trains(accuracy(executions), low=low, high=high):
        return []
    rewards, agreed = written_rewards(executions), consistent(executions)
    advantages = rewards if config.reward_model_normalise == "none" else standardise(rewards)
    return [
        {
            "trajectory_id": examined.sampled,
            "task_id": examined.task_id,
            "step": 0,
            "judgement": number,
            "score": None if agrees is None else 1 if agrees else -1,
            "reward": reward,
            "advantage": advantage,
        }
        for number, (agrees, reward, advantage) in enumerate(zip(agreed, rewards, advantages, strict=True))
    ]


def _as_columns(name: str, metric: Metric) -> dict[str, float | int | None]:
    """The estimate under `name`, with its bounds and denominators."""
    interval = metric.interval
    return {
        name: interval.estimate if interval else None,
        f"{name}_low": interval.low if interval else None,
        f"{name}_high": interval.high if interval else None,
        f"{name}_tasks": metric.tasks,
        f"{name}_trials": metric.trials,
    }


def parsing(found: dict[str, Executions]) -> dict[str, float | int | None]:
    """The number of written tests, the share that are invalid, and the mean share of given tests that programs pass."""
    parsed = [one for executions in found.values() for one in executions.parsed]
    shares = [sum(row) / len(row) for executions in found.values() for row in executions.given]
    return {
        "written_tests": len(parsed),
        "unparsable_tests": parsed.count(False) / len(parsed) if parsed else None,
        "tests_passed": sum(shares) / len(shares) if shares else None,
    }
