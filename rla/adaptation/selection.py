"""Which tasks a split has, which of them an iteration plays, which episodes it judges, and which tasks it changes.

Make: the environment makes or reads the tasks of a split; no two splits share one. With `--curate` the training pool
keeps the tasks that a start model can learn from, which some of its episodes won and some lost. If all rollouts
have the same outcome, no advantage is left. Source: the model-aware data set of "Demystifying RL in Agentic Reasoning"
(2025), section 3.3.

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
from itertools import combinations
from pathlib import Path
from typing import Any

from rla.adaptation.acceptance import Rule, measured_accuracies, read_standings, wanted_direction
from rla.adaptation.drafting import Choice
from rla.config.sections import AdaptationConfig, CreditConfig, RolloutConfig
from rla.envs.protocols import Adapts, Imports, Probes, need
from rla.envs.registry import environment
from rla.errors import UserError
from rla.pipeline import StageContext
from rla.seeds import derive
from rla.store.layout import places_of
from rla.store.manifest import is_complete
from rla.store.reading import read_rows, read_tasks, stream_rows
from rla.store.records import Direction, Status, StopReason, Task, content_id

_MIXED_BUDGET = 3  # `fill: mixed` plays at most so many times `tasks_per_iteration` active tasks
SAMPLED = 0.1  # share of the other tasks that is judged for the metrics
PLAYED = ("task_id", "trajectory_id", "outcome", "stop_reason")


def made_tasks(ctx: StageContext, split: str) -> list[Task]:
    """The tasks of a split, built in or imported. Each further held-out split of built-in tasks has its own seed.

    Raises UserError for tasks of another environment, because no stage would read them.
    """
    chosen, config = environment(ctx.config.env.name), ctx.config.tasks
    if not config.path:
        further = split in config.test_splits[1:]
        seed = derive(ctx.config.seed, "split", split) if further else ctx.config.seed
        tasks = chosen.tasks(ctx.config, split=split, seed=seed)
    else:
        tasks = need(chosen, Imports, "make-tasks").import_tasks(ctx.config, split=split, tell=ctx.progress.note)
    if strange := next((task.env for task in tasks if task.env != ctx.config.env.name), None):
        raise UserError(
            f"env.name: {ctx.config.env.name} makes tasks of the environment {strange!r}; let it give each task "
            "env=self.name, and let name be that of its entry point"
        )
    return tasks


def curated_pool(tasks: Sequence[Task], trajectories: Path) -> tuple[list[Task], dict[str, int]]:
    """(tasks that are kept, counts). Raises UserError if the shard is of other tasks, or if no task is left."""
    rows = stream_rows(trajectories, "trajectories", ["task_id", "outcome", "stop_reason"])
    rates = {task_id: rate for task_id, (rate, _) in measured_accuracies(rows).items()}
    known = {task.task_id for task in tasks}
    if others := rates.keys() - known:
        raise UserError(
            f"--curate {trajectories}: {len(others)} of its {len(rates)} tasks are not among the {len(tasks)} that "
            "these parameters make; give the --from, --env and params of the pool that its episodes were played on"
        )
    kept = [task for task in tasks if 0 < rates.get(task.task_id, 0) < 1]
    counts = {
        "unmeasured": len(known) - len(rates),
        "never_won": sum(rate <= 0 for rate in rates.values()),
        "always_won": sum(rate >= 1 for rate in rates.values()),
        "kept": len(kept),
    }
    if not kept:
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        raise UserError(f"--curate {trajectories}: no task is left ({said}); play more rollouts of each task")
    return kept, counts


def refuse_shared(ctx: StageContext, made: Mapping[str, Sequence[Task]], *, places: Mapping[str, Path]) -> None:
    """Raises UserError if two splits have a task in common.

    `made`: the tasks of each split that this call makes. `places`: the folder of each split's pool. Pools of earlier
    calls count too, and so does the run's newest pool, which has the changed tasks. Tasks of a data set are also
    compared by content: two rows may differ in nothing but an id.
    """
    train, name = ctx.config.tasks.train_split, ctx.config.env.name
    chosen = environment(name)

    def marks_of(task: Task) -> set[str]:
        imported = ctx.config.tasks.path and task.env == name
        return {task.task_id, *((chosen.likeness(task),) if imported and isinstance(chosen, Adapts) else ())}

    pools = {split: [*made.get(split, ())] for split in places}
    for split in places.keys() - made.keys():
        adapted = sorted(places_of(ctx.run, "pool"), key=lambda path: int(path.parent.name))[-1:]
        for folder in [places[split], *(adapted if split == train else ())]:
            pools[split] += read_tasks(folder) if is_complete(folder) else ()
    marks = {split: [marks_of(task) for task in tasks] for split, tasks in pools.items()}
    for one, other in combinations(pools, 2):
        known = set().union(*marks[one])
        if shared := sum(not known.isdisjoint(own) for own in marks[other]):
            keys = "tasks.train_split and tasks.test_splits" if train in (one, other) else "tasks.test_splits"
            raise UserError(
                f"{keys}: {one} and {other} share {shared} of {len(pools[other])} tasks; name splits whose "
                "data differ, or files (tasks.path, env.own.test_path)"
            )


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
        direction = wanted_direction(accuracy, config)
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
        limit=_most_pending(ctx.config.rollout, config.acceptance),
        resting={standing.slot for standing in standings if standing.rests_until >= ctx.iteration},
        leading={standing.slot for standing in standings if standing.eased and config.return_after},
        seed=derive(ctx.config.seed, "choose", ctx.iteration),
    )


def _most_pending(config: RolloutConfig, acceptance: Rule) -> int | None:
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
    played = pending[: _most_pending(config, acceptance)]
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
    most = _MIXED_BUDGET * config.tasks_per_iteration - len(parents) - len(drawn)
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
