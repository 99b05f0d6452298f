"""Which episodes the reward model judges, once outcomes and verdicts are known (`judge.tasks: training`).

    trains    an episode of a task that trains a model: not rejected, and its accuracy lies in the band of the policy
              (where its credit reads judgements) or in that of the reward model
    read      of a task that becomes easier: the failures, which the critic reads
    sampled   of all other tasks a SAMPLED share, so that metrics see them, too

Episodes that the environment broke are in none of the three: nothing reads what is said of them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rla.adaptation.candidates import chosen_tasks_to_change
from rla.adaptation.validating import measured_accuracies
from rla.config.sections import CreditConfig
from rla.envs.protocols import Adapts, Probes
from rla.envs.registry import environment
from rla.pipeline.context import StageContext
from rla.seeds import derive
from rla.store.reading import read_rows
from rla.store.records import Direction, StopReason

SAMPLED = 0.1
PLAYED = ("task_id", "trajectory_id", "outcome", "stop_reason")


def episodes_to_judge(ctx: StageContext) -> frozenset[str]:
    """The ids of the trajectories to judge. Reads the trajectories, the verdicts, the next pool and its standings."""
    config, env = ctx.config, environment(ctx.config.env.name)
    played = read_rows(ctx.path("trajectories"), "trajectories", list(PLAYED))
    verdicts = read_rows(ctx.path("verdicts"), "verdicts", ["task_id", "accepted"])
    changes = isinstance(env, Adapts) and config.adaptation.enabled
    choices = chosen_tasks_to_change(ctx, pool=ctx.path("next-pool")) if changes else []
    return wanted_episodes(
        played,
        rejected={row["task_id"] for row in verdicts if not row["accepted"]},
        credit=config.credit,
        criticised={choice.task.task_id for choice in choices if choice.direction is Direction.EASIER},
        seed=derive(config.seed, "judged", ctx.iteration),
        whole=isinstance(env, Probes),
    )


def wanted_episodes(
    played: Sequence[Mapping[str, Any]],
    *,
    rejected: Collection[str],
    credit: CreditConfig,
    criticised: Collection[str],
    seed: int,
    whole: bool,
) -> frozenset[str]:
    """The ids of the trajectories to judge. `played`: rows with the columns of PLAYED, in the order of the shard.

    `whole`: all episodes of a task or none, for reward models that write about tasks.
    """
    accuracies = measured_accuracies(played)
    episodes: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in played:
        if row["stop_reason"] != StopReason.ENV_ERROR:
            episodes[row["task_id"]].append(row)
    wanted: set[str] = set()
    for task, rows in episodes.items():
        chosen = task not in rejected and trains_a_model(accuracies[task][0], credit)
        if chosen or random.Random(derive(seed, task)).random() < SAMPLED:
            found = rows
        else:
            found = [row for row in rows if row["outcome"] != 1] if task in criticised else []
        wanted.update(row["trajectory_id"] for row in (rows if whole and found else found))
    return frozenset(wanted)


def trains_a_model(accuracy: float, credit: CreditConfig) -> bool:
    """Whether a task that is won with `accuracy` trains a model in a way that its judgements change."""
    low, high = credit.reward_model_band
    if low <= accuracy <= high:
        return True
    match credit.estimator:
        case "step":  # nobody is asked who won
            return True
        case "integrated":
            low, high = credit.policy_band
            inside = low < accuracy < high
            end = accuracy in (low, high) and 0 < accuracy < 1  # at a bound, too
            return credit.step_weight != 0 and (inside or end)
        case _:
            return False
