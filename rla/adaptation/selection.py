"""Which tasks an iteration plays, which episodes it judges, and which tasks it asks to change.

Play: n = `rollout.tasks_per_iteration`, drawn from the slots without a pending task, every slot alike.

    pending: beside             n active tasks, and the pending ones in addition
    pending: within             n tasks in all, the pending ones first: as many episodes as without adaptation
    acceptance: interval        the parents of the pending tasks are the first of the active ones
    slots: m                    the sample comes from m slots that the run keeps, so accepted tasks are met again
    fill: mixed                 further tasks stand by (`rla.rollouts.play.filling_rounds`)

A uniform draw from thousands of slots would play each less than once in a run, and no task would be changed twice.

Judge (`judge.tasks: training`), once outcomes and verdicts are known:

    episodes of a task that trains a model: not rejected, accuracy inside the band of the policy (if its credit reads
    judgements) or of the reward model; failures of a task that becomes easier, which the critic reads; and a share
    SAMPLED of all other tasks, for the metrics

Change: accuracy > alpha_high asks for a harder task, accuracy < alpha_low for an easier one. Both bounds are strict
(Algorithm 2 of the RLAnything paper): with five or ten rollouts, 0.2 and 0.8 lie in the band.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rla.adaptation.acceptance import Rule, measured_accuracies, read_standings, wanted_direction
from rla.adaptation.drafting import Choice
from rla.config.sections import AdaptationConfig, CreditConfig, RolloutConfig
from rla.envs.protocols import Adapts, Probes
from rla.envs.registry import environment
from rla.pipeline import StageContext
from rla.seeds import derive
from rla.store.reading import read_rows, read_tasks
from rla.store.records import Direction, Status, StopReason, Task, content_id

MIXED_BUDGET = 3  # `fill: mixed` plays at most so many times `tasks_per_iteration` active tasks
SAMPLED = 0.1  # share of the other tasks that is judged for the metrics
PLAYED = ("task_id", "trajectory_id", "outcome", "stop_reason")


def choose(
    pool: Sequence[Task],
    accuracies: Mapping[str, float],
    *,
    config: AdaptationConfig,
    resting: Collection[str] = (),
    leading: Collection[str] = (),
    limit: int | None = None,
    seed: int,
) -> list[Choice]:
    """The tasks outside the band, the most extreme first, at most `config.max_tasks`; ties in an order drawn by seed.

    `accuracies`: task_id -> accuracy in [0, 1] of the tasks that were played. `resting`: slots that rest after a
    verdict. `leading`: slots whose task will give way to its root, and is not made harder. `limit`: the number of
    changed tasks that can be played.
    """
    choices = []
    for task in pool:
        accuracy = accuracies.get(task.task_id)
        if accuracy is None or task.status != Status.ACTIVE or task.depth >= config.max_depth or task.slot in resting:
            continue
        direction = wanted_direction(accuracy, alpha_low=config.alpha_low, alpha_high=config.alpha_high)
        if direction is None or (direction is Direction.HARDER and task.slot in leading):
            continue
        choices.append(Choice(task, direction, accuracy))
    middle = (config.alpha_low + config.alpha_high) / 2
    choices.sort(key=lambda c: (-abs(c.accuracy - middle), content_id(str(seed), c.task.task_id)))
    return choices[: config.max_tasks if limit is None else min(config.max_tasks, limit)]


def chosen_tasks_to_change(ctx: StageContext, *, pool: Path) -> list[Choice]:
    """`choose` from the shards of this iteration; `pool` is the next one, in which accepted tasks have their place."""
    config = ctx.config.adaptation
    standings = read_standings(ctx.path("standings"))
    played = read_rows(ctx.path("trajectories"), "trajectories", ["task_id", "outcome", "stop_reason"])
    return choose(
        read_tasks(pool),
        {task: accuracy for task, (accuracy, _) in measured_accuracies(played).items()},
        config=config,
        limit=most_pending(ctx.config.rollout, config.acceptance),
        resting={standing.slot for standing in standings if standing.rests_until >= ctx.iteration},
        leading={standing.slot for standing in standings if standing.eased and config.return_after},
        seed=derive(ctx.config.seed, "choose", ctx.iteration),
    )


def most_pending(config: RolloutConfig, acceptance: Rule) -> int | None:
    """The number of pending tasks that an iteration can play; None: all."""
    compared = acceptance == "interval"
    if config.pending == "within":
        return config.tasks_per_iteration // 2 if compared else config.tasks_per_iteration
    return config.tasks_per_iteration if compared else None


def tasks_and_reserve(
    pool: Sequence[Task],
    pending: Sequence[Task],
    *,
    config: RolloutConfig,
    acceptance: Rule,
    seed: int,
    run_seed: int,
) -> tuple[list[Task], list[Task]]:
    """(tasks to play, further tasks that `fill: mixed` may play, in order). The first are the parents to compare with,
    a sample of the slots without a pending task, then the pending tasks by id, as many as there are `places`.

    `seed` is the seed of the iteration; `run_seed` draws the slots that the whole run plays.
    """
    played = pending[: most_pending(config, acceptance)]
    active = config.tasks_per_iteration - (len(played) if config.pending == "within" else 0)
    wanted = {task.parent_id for task in played} if acceptance == "interval" else set()
    waiting = {task.slot for task in played}
    parents = sorted((task for task in pool if task.task_id in wanted), key=lambda task: task.slot)
    slots = sorted(task.slot for task in pool)
    own = set(random.Random(run_seed).sample(slots, config.slots) if 0 < config.slots < len(slots) else slots)
    free = sorted((task for task in pool if task.slot in own - waiting), key=lambda task: task.slot)
    drawn = _drawn(free, active - len(parents), seed)
    first = parents + drawn + sorted(played, key=lambda task: task.task_id)
    if config.fill == "tasks":
        return first, []
    taken = {task.slot for task in (*drawn, *parents)}
    left = [task for task in free if task.slot not in taken]
    most = MIXED_BUDGET * config.tasks_per_iteration - len(parents) - len(drawn)
    return first, _drawn(left, most, derive(seed, "reserve"))


def _drawn(free: Sequence[Task], count: int, seed: int) -> list[Task]:
    """`count` of the tasks, or all if there are fewer."""
    return random.Random(seed).sample(free, max(0, min(count, len(free))))


def episodes_to_judge(ctx: StageContext) -> frozenset[str]:
    """Ids of the trajectories to judge, from the trajectories, the verdicts, the next pool and its standings."""
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
    """Ids of the trajectories to judge. `played`: rows with the columns of PLAYED, in the order of the shard.

    `whole`: all episodes of a task or none, for reward models that write about tasks. Episodes that ended because their
    environment failed are left out, since nothing reads their judgements.
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
    """Whether judgements of a task with this accuracy change how a model trains."""
    low, high = credit.reward_model_band
    if low <= accuracy <= high or credit.estimator == "step":  # which needs no outcomes
        return True
    low, high = credit.policy_band
    at_a_bound = accuracy in (low, high) and 0 < accuracy < 1
    return credit.estimator == "integrated" and credit.step_weight != 0 and (low < accuracy < high or at_a_bound)
