"""Which tasks an iteration plays, which episodes it judges, and which tasks it asks to change.

Play: n = `rollout.tasks_per_iteration`, drawn from the slots without a pending task.

    pending: beside             n active tasks, and the pending ones in addition
    pending: within             n tasks in all, the pending ones first: as many episodes as without adaptation
    acceptance: interval        the parents of the pending tasks are the first of the active ones
    sampling: uniform           every slot alike
    sampling: learnability      ceil(REVISIT * n) slots that were not seen for longest, then the others with weight
                                a (1 - a), where a is the last accuracy of the slot's task
    slots: m                    the sample comes from m slots that the run keeps, so accepted tasks are met again
    fill: mixed                 further tasks stand by (`rla.rollouts.trajectory_shard`)

a (1 - a) is the variance of the outcome, from which a policy gradient learns (Foster and Foerster, Learning to Reason
at the Frontier of Learnability, 2025). A task that is always won or always lost has weight 0 until its turn among the
long unseen comes. A uniform draw from thousands of slots would play each less than once in a run, and no task would
be changed twice.

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
from math import ceil, log
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rla.adaptation.accept import Rule, wanted_direction
from rla.adaptation.edits import Choice
from rla.adaptation.standings import (
    Seen,
    leading_slots,
    measured_accuracies,
    measured_streaks,
    read_standings,
    resting_slots,
)
from rla.config.sections import AdaptationConfig, CreditConfig, RolloutConfig
from rla.envs.protocols import Adapts, Probes
from rla.envs.registry import environment
from rla.pipeline.context import StageContext
from rla.seeds import derive
from rla.store.reading import read_rows, read_tasks
from rla.store.records import Direction, Status, StopReason, Task, content_id

REVISIT = 0.25  # share of the tasks that is drawn among those not seen for longest
MIXED_BUDGET = 3  # `fill: mixed` plays at most so many times `tasks_per_iteration` active tasks
SAMPLED = 0.1  # share of the other tasks that is judged for the metrics


def choose(
    pool: Sequence[Task],
    accuracies: Mapping[str, float],
    *,
    config: AdaptationConfig,
    resting: Collection[str] = (),
    leading: Collection[str] = (),
    streaks: Mapping[str, int] | None = None,
    limit: int | None = None,
    seed: int,
) -> list[Choice]:
    """The tasks outside the band, the most extreme first, at most `config.max_tasks`; ties in an order drawn by seed.

    `accuracies`: task_id -> accuracy in [0, 1] of the tasks that were played. `resting`: slots that rest after a
    verdict. `leading`: slots whose task will give way to its root, which is not made harder. `streaks`: slot -> number
    of measurements in a row on one side of the band (default 1); `config.ask_after` of them are needed, because one
    measurement of few rollouts is often wrong. `limit`: the number of changed tasks that can be played.
    """
    choices = []
    for task in pool:
        accuracy = accuracies.get(task.task_id)
        if accuracy is None or task.status != Status.ACTIVE or task.depth >= config.max_depth:
            continue
        if task.slot in resting or (streaks or {}).get(task.slot, 1) < config.ask_after:
            continue
        direction = wanted_direction(accuracy, alpha_low=config.alpha_low, alpha_high=config.alpha_high)
        if direction is Direction.HARDER and task.slot in leading:
            continue
        if direction is not None:
            choices.append(Choice(task, direction, accuracy))
    middle = (config.alpha_low + config.alpha_high) / 2
    choices.sort(key=lambda c: (-abs(c.accuracy - middle), content_id(str(seed), c.task.task_id)))
    most = config.max_tasks if limit is None else min(config.max_tasks, limit)
    return choices[:most]


def chosen_tasks_to_change(ctx: StageContext, *, pool: Path) -> list[Choice]:
    """`choose` from the shards of this iteration; `pool` is the next one, in which accepted tasks have their place."""
    config = ctx.config.adaptation
    standings = read_standings(ctx.path("standings"))
    played = read_rows(ctx.path("trajectories"), "trajectories", ["task_id", "outcome", "stop_reason"])
    return choose(
        read_tasks(pool),
        {task: accuracy for task, (accuracy, _) in measured_accuracies(played).items()},
        config=config,
        limit=places(ctx.config.rollout, config.acceptance),
        resting=resting_slots(standings, iteration=ctx.iteration),
        leading=leading_slots(standings, config=config),
        streaks=measured_streaks(standings),
        seed=derive(ctx.config.seed, "choose", ctx.iteration),
    )


def drawn_tasks(
    free: Sequence[Task], count: int, *, config: RolloutConfig, seen: Mapping[str, Seen], seed: int
) -> list[Task]:
    """At most `count` of the tasks `free`, by `config.sampling`. `seen`: slot -> its last measurement."""
    count = max(0, min(count, len(free)))
    if config.sampling == "uniform":
        return random.Random(seed).sample(free, count)
    rng = random.Random(seed)
    lots = {task.slot: (rng.random(), 1 - rng.random()) for task in free}  # the second is above 0, for its logarithm
    oldest = sorted(free, key=lambda task: (seen[task.slot].iteration if task.slot in seen else -1, lots[task.slot][0]))
    again = oldest[: ceil(REVISIT * count)]
    weights = {task.slot: weight for task in oldest[len(again) :] if (weight := learnability(seen.get(task.slot))) > 0}
    # The slots of the largest log(u) / w are a draw without replacement by weight (Efraimidis and Spirakis, 2006).
    likely = sorted(weights, key=lambda slot: -log(lots[slot][1]) / weights[slot])[: count - len(again)]
    by_slot = {task.slot: task for task in free}
    drawn = again + [by_slot[slot] for slot in likely]
    taken = {task.slot for task in drawn}
    return drawn + [task for task in oldest if task.slot not in taken][: count - len(drawn)]


def learnability(seen: Seen | None) -> float:
    """a (1 - a); 0 without a measurement."""
    return 0.0 if seen is None else seen.accuracy * (1 - seen.accuracy)


def places(config: RolloutConfig, acceptance: Rule) -> int | None:
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
    seen: Mapping[str, Seen] = MappingProxyType({}),
) -> tuple[list[Task], list[Task]]:
    """(tasks to play, further tasks that `fill: mixed` may play, in order). The first are the parents to compare with,
    a sample of the slots without a pending task, then the pending tasks by id, as many as there are `places`.

    `seed` is that of the iteration; `run_seed` draws the slots that the whole run plays.
    """
    played = pending[: places(config, acceptance)]
    active = config.tasks_per_iteration - (len(played) if config.pending == "within" else 0)
    wanted = {task.parent_id for task in played} if acceptance == "interval" else set()
    waiting = {task.slot for task in played}
    parents = sorted((task for task in pool if task.task_id in wanted), key=lambda task: task.slot)
    own = own_slots(pool, config.slots, run_seed)
    free = sorted((task for task in pool if task.slot in own - waiting), key=lambda task: task.slot)
    drawn = drawn_tasks(free, active - len(parents), config=config, seen=seen, seed=seed)
    first = parents + drawn + sorted(played, key=lambda task: task.task_id)
    if config.fill == "tasks":
        return first, []
    taken = {task.slot for task in (*drawn, *parents)}
    left = [task for task in free if task.slot not in taken]
    most = MIXED_BUDGET * config.tasks_per_iteration - len(parents) - len(drawn)
    return first, drawn_tasks(left, most, config=config, seen=seen, seed=derive(seed, "reserve"))


def own_slots(pool: Sequence[Task], count: int, seed: int) -> set[str]:
    """The slots that a run plays: `count` of them, drawn by its seed, or all."""
    slots = sorted(task.slot for task in pool)
    return set(random.Random(seed).sample(slots, count) if 0 < count < len(slots) else slots)


PLAYED = ("task_id", "trajectory_id", "outcome", "stop_reason")


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
    if low <= accuracy <= high:
        return True
    match credit.estimator:
        case "step":  # needs no outcomes
            return True
        case "integrated":
            low, high = credit.policy_band
            inside = low < accuracy < high
            end = accuracy in (low, high) and 0 < accuracy < 1  # at a bound, too
            return credit.step_weight != 0 and (inside or end)
        case _:
            return False
