"""Figures of an iteration's episodes and judgements, about the policy and about the reward model.

    p+ = P(S = +1 | success),  p- = P(S = -1 | failure)      over valid votes, all steps pooled
    mu = p+ + p-                                             the reward model is informative iff mu > 1
    bound = 1 - exp(-m (mu - 1)^2 / 4) for mu > 1, else 0    at most the ordering accuracy; m: valid
                                                             votes a step, mean over judged steps
    outcome accuracy = P(sign(mean over steps of the mean score) = O)         a tie counts one half
    self-agreement   = P(two different valid votes on one step are equal)     mean over steps with two or more
    importance ratio = max(a, 1 - a) / min(a, 1 - a)         of a task's accuracy a, 0 < a < 1; 1 at a = 1/2

Success and failure are sampled with weights a and 1 - a, so the ratio has no bound on a one-sided task (a of 0 or 1):
it is null there, and such tasks are counted by share. Source: RLAnything, Theorem 1 and the discussion of difficulty.

The votes are also compared with fact: the label of a step, which the environment's own solver gives. It is +1 if the
step came nearer than the episode had ever been, or looked into a new, likely place while something that is needed had
not been seen. Over the valid votes of labelled steps (m votes of a step count m times):

    accuracy   P(S = label), with an interval that takes the task as the unit (votes of one task resemble each other)
    good, bad  P(S = +1 | label +1), P(S = -1 | label -1);  balanced = their mean: 1/2 for a judge that does not look

On the frozen probe (`rla.rollouts.evaluation`) `probe_balanced` and `probe_mu` have intervals of two shares with tasks
as clusters (`rla.metrics.intervals`). Its labels lie next to its episodes, in `labels.json`.

A quantity without data is null.
"""

from __future__ import annotations

from math import exp
from pathlib import Path

import polars as pl

from rla.credit.estimators import accuracies
from rla.errors import UserError
from rla.metrics.intervals import (
    Interval,
    Shares,
    change_of_shares,
    clustered,
    joined_shares,
    shares_interval,
    success_interval,
)
from rla.store.frames import read_iteration
from rla.store.manifest import digest, read_json
from rla.store.reading import read_manifest
from rla.store.records import Status

Metrics = dict[str, float | int | None]

STEP = ["trajectory_id", "step"]
PROBE_LABELS = "labels.json"  # {"steps": [one object with the columns of PROBE_LABEL, ...]}
PROBE_LABEL = {"trajectory_id": pl.String, "step": pl.Int32, "task_id": pl.String, "label": pl.Int8}
# figure -> the column whose two signs make its shares, and their weight
_PROBE_SIDES = {"balanced": ("label", 0.5), "mu": ("outcome", 1.0)}


def diagnostics(episodes: pl.DataFrame, judgements: pl.DataFrame, steps: pl.DataFrame) -> Metrics:
    """The figures above that need no labels, as flat numbers.

    `episodes`: trajectory_id, task_id, status, outcome, n_steps. `judgements`: trajectory_id, step, score (+1, -1,
    null). `steps`: trajectory_id, step, mean_score. Success counts active tasks; the reward model is measured on all
    episodes given, including episodes of pending tasks.
    """
    active = episodes.filter(pl.col("status") == Status.ACTIVE.value)
    interval = success_interval(active.select("task_id", pl.col("outcome") > 0).iter_rows())
    return {
        "episodes": active.height,
        **_with_bounds("success", interval),
        "mean_steps": _mean_of(active, pl.col("n_steps").cast(pl.Float64)),
        **judge_metrics(episodes, judgements, steps),
        **balance(episodes),
    }


def judge_metrics(episodes: pl.DataFrame, judgements: pl.DataFrame, steps: pl.DataFrame) -> Metrics:
    """The figures of the reward model that need votes and outcomes alone; arguments as for `diagnostics`."""
    votes = judgements.join(episodes.select("trajectory_id", "outcome"), on="trajectory_id")
    valid = votes.drop_nulls("score")
    p_plus = _mean_of(valid.filter(pl.col("outcome") > 0), pl.col("score") > 0)
    p_minus = _mean_of(valid.filter(pl.col("outcome") < 0), pl.col("score") < 0)
    mu = None if p_plus is None or p_minus is None else p_plus + p_minus
    # A reply that does not parse is not one of the m votes, and a step that only has such replies has none.
    valid_votes = votes.group_by(STEP).agg(valid=pl.col("score").count())
    per_step = _mean_of(valid_votes, pl.col("valid"))
    return {
        "p_plus": p_plus,
        "p_minus": p_minus,
        "mu": mu,
        "theorem1_bound": None if mu is None or per_step is None else theorem1_bound(mu, per_step),
        "unparsable_votes": _mean_of(votes, pl.col("score").is_null()),
        "rm_outcome_accuracy": outcome_accuracy(episodes, steps),
        "self_agreement": self_agreement(judgements),
    }


def theorem1_bound(mu: float, votes: float) -> float:
    """1 - exp(-votes (mu - 1)^2 / 4) if mu > 1, else 0."""
    return 1.0 - exp(-votes * (mu - 1.0) ** 2 / 4.0) if mu > 1.0 else 0.0


def outcome_accuracy(episodes: pl.DataFrame, steps: pl.DataFrame) -> float | None:
    """Share of the trajectories whose average score has the sign of their outcome; ties count one half.

    Trajectories without any valid judgement are left out; null if none is left.
    """
    means = (
        steps.select("trajectory_id", pl.col("mean_score").cast(pl.Float64))
        .drop_nulls()
        .group_by("trajectory_id", maintain_order=True)
        .agg(pl.col("mean_score").mean())
        .join(episodes.select("trajectory_id", "outcome"), on="trajectory_id")
    )
    agreement = pl.col("mean_score") * pl.col("outcome")
    tie = pl.col("mean_score").abs() < 1e-12
    return _mean_of(means, pl.when(tie).then(0.5).otherwise((agreement > 0).cast(pl.Float64)))


def self_agreement(judgements: pl.DataFrame) -> float | None:
    """Probability that two valid votes on the same step are equal, averaged over the steps that have two."""
    plus, votes = pl.col("plus").cast(pl.Float64), pl.col("votes").cast(pl.Float64)
    minus = votes - plus
    steps = (
        judgements.drop_nulls("score")
        .group_by(STEP, maintain_order=True)
        .agg(plus=(pl.col("score") > 0).sum(), votes=pl.len())
        .filter(pl.col("votes") > 1)
    )
    return _mean_of(steps, (plus * (plus - 1) + minus * (minus - 1)) / (votes * (votes - 1)))


def reward_statistics(policy_rewards: pl.DataFrame, rm_rewards: pl.DataFrame) -> Metrics:
    """How much there is to train on; a sample is a row whose advantage is not 0."""
    trains, spread = pl.col("advantage") != 0, policy_rewards.select(pl.col("advantage").std(ddof=0)).item()
    return {
        "policy_samples": policy_rewards.filter(trains).height,
        "rm_samples": rm_rewards.filter(trains).height,
        "reward_mean": _mean_of(policy_rewards, pl.col("reward")),
        "advantage_std": None if spread is None else float(spread),
    }


def difficulty(episodes: pl.DataFrame) -> pl.DataFrame:
    """Per task: task_id, rollouts, accuracy, importance_ratio; in order of task_id. `episodes`: task_id, outcome."""
    won, lost = pl.col("accuracy"), 1 - pl.col("accuracy")
    ratio = pl.max_horizontal(won, lost) / pl.min_horizontal(won, lost)
    return accuracies(episodes).with_columns(importance_ratio=pl.when(ratio.is_finite()).then(ratio))


def balance(episodes: pl.DataFrame) -> Metrics:
    """Median and maximum of the ratio over the tasks that have one, and the share of the others."""
    ratios = difficulty(episodes)["importance_ratio"]
    known = ratios.drop_nulls()
    return {
        "importance_ratio_median": known.quantile(0.5, "linear"),
        "importance_ratio_max": known.quantile(1.0),
        "one_sided_tasks": ratios.null_count() / len(ratios) if len(ratios) else None,
    }


def process_metrics(episodes: pl.DataFrame, judgements: pl.DataFrame, labels: pl.DataFrame) -> Metrics:
    """The figures that need labels, as flat numbers.

    `episodes`: trajectory_id, outcome. `judgements`: trajectory_id, step, score (+1, -1, null). `labels`:
    trajectory_id, task_id, step, label (+1, -1), before, after (`rla.rollouts.labels`). Rows of other episodes do not
    count.
    """
    known = labels.join(episodes.select("trajectory_id"), on="trajectory_id", how="semi")
    votes = _valid_votes(known, judgements)
    per_task = votes.group_by("task_id").agg(pl.col("right").sum(), pl.len()).sort("task_id")
    good, bad = _right_on(votes, 1), _right_on(votes, -1)
    return {
        "labelled_steps": known.height,
        "rm_process_votes": votes.height,
        **_with_bounds("rm_process", clustered(per_task.select("right", "len").rows()), estimate="rm_process_accuracy"),
        "rm_process_good": good,
        "rm_process_bad": bad,
        "rm_process_balanced": None if good is None or bad is None else (good + bad) / 2,
        "good_steps": _mean_of(known, pl.col("label") > 0),
        "distance_covered": _mean_of(_coverage(known), pl.col("covered")),
    }


def _with_bounds(name: str, interval: Interval | None, *, estimate: str = "") -> Metrics:
    """The estimate under `name`, or the name that `estimate` gives, and its bounds as `name_low` and `name_high`."""
    return {
        estimate or name: interval.estimate if interval else None,
        f"{name}_low": interval.low if interval else None,
        f"{name}_high": interval.high if interval else None,
    }


def _mean_of(frame: pl.DataFrame, values: pl.Expr) -> float | None:
    """The mean of `values` over the rows; None without rows."""
    found = frame.select(values.mean()).item()
    return None if found is None else float(found)


def _valid_votes(labels: pl.DataFrame, judgements: pl.DataFrame) -> pl.DataFrame:
    """The valid votes on labelled steps, each with the columns of `labels` and whether it is `right`."""
    votes = judgements.select(*STEP, "score").drop_nulls().join(labels, on=STEP)
    return votes.with_columns(right=pl.col("score") == pl.col("label"))


def _right_on(votes: pl.DataFrame, label: int) -> float | None:
    """The share of the votes that are right, on steps with this label."""
    return _mean_of(votes.filter(pl.col("label") == label), pl.col("right"))


def _coverage(labels: pl.DataFrame) -> pl.DataFrame:
    """Per episode `covered`: the share of the way that it had done at its nearest point, 1 - min_i after_i / before_0.

    Episodes whose distance is unknown, or infinite at the start, are left out.
    """
    first = pl.col("before").sort_by("step").first()
    return (
        labels.drop_nulls(["before", "after"])
        .group_by("trajectory_id", "task_id", maintain_order=True)
        .agg(start=first, covered=(1 - pl.col("after").min() / first).clip(0, 1))
        .filter(pl.col("start").is_between(0, float("inf"), closed="none"))
    )


def probe_metrics(probe: Path, scores: Path) -> Metrics:
    """The figures of the votes in a scores shard on the frozen probe: `probe_balanced` and `probe_mu` with their
    intervals, and the shares `probe_good` and `probe_bad`.
    """
    votes = _probe_votes(probe, scores)
    found: Metrics = {"probe_steps": _probe_labels(probe).height, "probe_votes": votes.height}
    for name, (_, weight) in _PROBE_SIDES.items():
        tasks = _probe_shares(votes, name)
        found |= _with_bounds(f"probe_{name}", shares_interval(tasks, weight=weight))
        found[f"probe_{name}"] = joined_shares(tasks, weight)  # known even if its interval is not
    return found | {"probe_good": _right_on(votes, 1), "probe_bad": _right_on(votes, -1)}


def probe_change(probe: Path, before: Path, after: Path) -> Interval | None:
    """The balanced accuracy of the votes `after` minus `before`, two scores shards of the same probe; None if it is not
    known, or if a shard was made from another probe.
    """
    frozen = digest(probe)
    if any(frozen not in read_manifest(scores)["input_digests"].values() for scores in (before, after)):
        return None
    first, last = (_probe_shares(_probe_votes(probe, scores), "balanced") for scores in (before, after))
    return change_of_shares(first, last, weight=_PROBE_SIDES["balanced"][1])


def _probe_votes(probe: Path, scores: Path) -> pl.DataFrame:
    """The valid votes of a scores shard on the labelled steps: task_id, outcome, label, score, right."""
    episodes, _, judgements = read_iteration(probe, scores)
    known = _probe_labels(probe).join(episodes.select("trajectory_id", "outcome"), on="trajectory_id")
    return _valid_votes(known, judgements)


def _probe_labels(probe: Path) -> pl.DataFrame:
    """The labels next to the episodes. Raises UserError if they are missing or damaged."""
    path = probe.with_name(PROBE_LABELS)
    try:
        return pl.DataFrame(read_json(path)["steps"], schema=PROBE_LABEL)
    except (OSError, KeyError, TypeError, pl.exceptions.PolarsError):
        raise UserError(
            f"{path}: not the labels of a probe; remove {path.parent} and call rla evaluate again"
        ) from None


def _probe_shares(votes: pl.DataFrame, name: str) -> Shares:
    """Per task the counts of the two shares of `balanced` or of `mu`."""
    side = pl.col(_PROBE_SIDES[name][0])
    hit = pl.col("score") == side
    counted = votes.group_by("task_id").agg(
        plus=(hit & (side > 0)).sum(),
        all_plus=(side > 0).sum(),
        minus=(hit & (side < 0)).sum(),
        all_minus=(side < 0).sum(),
    )
    rows = counted.sort("task_id").iter_rows()
    return {task: ((plus, of_plus), (minus, of_minus)) for task, plus, of_plus, minus, of_minus in rows}
