"""The reward model's votes against fact, in an iteration and on the frozen probe: did the step help?

Two truths about a step, both from the environment's own solver:

    process    the step's label: it came nearer than the episode had ever been, or looked into a new, likely place
               while something that is needed had not been seen
    distance   +1 iff less was left to do after the step than before it: exploring counts for nothing, winning back
               lost ground counts

Each gives the same figures over the valid votes of labelled steps (m votes of a step count m times):

    accuracy   P(S = truth), with an interval that takes the task as the unit (votes of one task resemble each other)
    good, bad  P(S = +1 | truth +1), P(S = -1 | truth -1);  balanced = their mean: 1/2 for a judge that does not look
    majority   P(sign of the step's mean vote = truth), over steps; a tie counts one half
    won, lost  accuracy on the steps of episodes with this outcome

and, of the steps themselves: the share that helped, `label_mu` (the mu of a judge without error), and the share of the
way that an episode covered, 1 - min_i after_i / before_0. A quantity without data is null.

On the frozen probe (`rla.rollouts.evaluation`) `probe_balanced` and `probe_mu` have intervals of two shares with tasks
as clusters (`rla.metrics.intervals`). Its labels lie next to its episodes, in `labels.json`.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from rla.errors import UserError
from rla.metrics.intervals import Interval, Shares, change_of_two_shares, clustered, joined_shares, two_shares
from rla.store.manifest import digest, read_json
from rla.store.reading import read_iteration, read_manifest

Metrics = dict[str, float | int | None]

STEP = ["trajectory_id", "step"]
PROBE_LABELS = "labels.json"  # {"steps": [one object with the columns of PROBE_LABEL, ...]}
PROBE_LABEL = {"trajectory_id": pl.String, "step": pl.Int32, "task_id": pl.String, "label": pl.Int8}
PROBE_WEIGHTS = {"balanced": 0.5, "mu": 1.0}  # of the sum of two shares


def process_metrics(episodes: pl.DataFrame, judgements: pl.DataFrame, labels: pl.DataFrame) -> Metrics:
    """All figures of an iteration as flat numbers, named as in its metrics file.

    `episodes`: trajectory_id, outcome. `judgements`: trajectory_id, step, score (+1, -1, null). `labels`:
    trajectory_id, task_id, step, label (+1, -1), before, after (`rla.rollouts.labels`). Rows of other episodes do not
    count.
    """
    known = labels.join(episodes.select("trajectory_id", "outcome"), on="trajectory_id")
    closer = pl.when(pl.col("after") < pl.col("before")).then(1).otherwise(-1)
    helped = known.with_columns(truth=pl.col("label"))
    nearer = known.drop_nulls(["before", "after"]).with_columns(truth=closer)
    plus = mean_of(helped.filter(pl.col("outcome") > 0), pl.col("truth") > 0)
    minus = mean_of(helped.filter(pl.col("outcome") < 0), pl.col("truth") < 0)
    covered = coverage(known)
    return {
        "labelled_steps": known.height,
        **_accuracy_metrics("rm_process", helped, judgements),
        **_accuracy_metrics("rm_distance", nearer, judgements),
        "good_steps": mean_of(helped, pl.col("truth") > 0),
        "closer_steps": mean_of(nearer, pl.col("truth") > 0),
        "label_mu": None if plus is None or minus is None else plus + minus,
        "distance_covered": mean_of(covered, pl.col("covered")),
        "distance_covered_lost": mean_of(covered.filter(pl.col("outcome") < 0), pl.col("covered")),
    }


def mean_of(frame: pl.DataFrame, values: pl.Expr) -> float | None:
    """The mean of `values` over the rows; None without rows."""
    found = frame.select(values.mean()).item()
    return None if found is None else float(found)


def _accuracy_metrics(prefix: str, steps: pl.DataFrame, judgements: pl.DataFrame) -> Metrics:
    """The figures of one truth. `steps`: trajectory_id, task_id, step, outcome, truth (+1, -1)."""
    votes = _valid_votes(steps, judgements)
    interval = clustered([(row["right"], row["votes"]) for row in _by_task(votes).iter_rows(named=True)])
    right = pl.col("right")
    good, bad = mean_of(votes.filter(pl.col("truth") > 0), right), mean_of(votes.filter(pl.col("truth") < 0), right)
    means = votes.group_by(STEP).agg(pl.col("score").cast(pl.Int32).sum(), pl.col("truth").first())
    agreement = pl.col("score") * pl.col("truth")
    found: Metrics = {
        "votes": votes.height,
        "accuracy": interval.estimate if interval else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "good": good,
        "bad": bad,
        "balanced": None if good is None or bad is None else (good + bad) / 2,
        "majority": mean_of(means, pl.when(agreement == 0).then(0.5).otherwise((agreement > 0).cast(pl.Float64))),
        "won": mean_of(votes.filter(pl.col("outcome") > 0), right),
        "lost": mean_of(votes.filter(pl.col("outcome") < 0), right),
    }
    return {f"{prefix}_{name}": value for name, value in found.items()}


def _valid_votes(steps: pl.DataFrame, judgements: pl.DataFrame) -> pl.DataFrame:
    """The valid votes on `steps`, each with the step's `truth` and whether it is `right`."""
    return (
        judgements.select(*STEP, "score")
        .drop_nulls()
        .join(steps.select(*STEP, "task_id", "outcome", "truth"), on=STEP)
        .with_columns(right=pl.col("score") == pl.col("truth"))
    )


def _by_task(votes: pl.DataFrame) -> pl.DataFrame:
    """Per task the votes and how many of them are `right`, in order of task_id."""
    return votes.group_by("task_id").agg(right=pl.col("right").sum(), votes=pl.len()).sort("task_id")


def accuracy_by_task(known: pl.DataFrame, judgements: pl.DataFrame) -> pl.DataFrame:
    """Per task with labels: task_id, good_steps, process_votes, process_accuracy (null without votes).

    `known`: labels with the outcome of their episode.
    """
    steps = known.with_columns(truth=pl.col("label"))
    return (
        steps.group_by("task_id")
        .agg(good_steps=(pl.col("truth") > 0).mean())
        .join(_by_task(_valid_votes(steps, judgements)), on="task_id", how="left")
        .select(
            "task_id",
            "good_steps",
            process_votes=pl.col("votes").fill_null(0),
            process_accuracy=pl.col("right") / pl.col("votes"),
        )
    )


def coverage(known: pl.DataFrame) -> pl.DataFrame:
    """Per episode (trajectory_id, task_id, outcome) `covered`: the share of the way done at its nearest point.

    Episodes whose distance is unknown, or infinite at the start, are left out.
    """
    first = pl.col("before").sort_by("step").first()
    return (
        known.drop_nulls(["before", "after"])
        .group_by("trajectory_id", "task_id", "outcome", maintain_order=True)
        .agg(start=first, covered=(1 - pl.col("after").min() / first).clip(0, 1))
        .filter(pl.col("start").is_between(0, float("inf"), closed="none"))
        .select("trajectory_id", "task_id", "outcome", "covered")
    )


def probe_metrics(probe: Path, scores: Path) -> Metrics:
    """The figures of the votes in a scores shard on the frozen probe: `probe_balanced` and `probe_mu` with their
    intervals, and the shares `probe_good` and `probe_bad`.
    """
    votes = _probe_votes(probe, scores)
    found: Metrics = {"probe_steps": _probe_labels(probe).height, "probe_votes": votes.height}
    for name, weight in PROBE_WEIGHTS.items():
        tasks = _probe_shares(votes, name)
        interval = two_shares(tasks, weight=weight)
        found[f"probe_{name}"] = joined_shares(tasks, weight)
        found[f"probe_{name}_low"] = interval.low if interval else None
        found[f"probe_{name}_high"] = interval.high if interval else None
    for name, truth in (("good", 1), ("bad", -1)):
        found[f"probe_{name}"] = mean_of(votes.filter(pl.col("truth") == truth), pl.col("right"))
    return found


def probe_changes(probe: Path, before: Path, after: Path) -> dict[str, Interval]:
    """`balanced` and `mu` of the votes `after` minus those `before`, two scores shards of the same probe.

    A figure that is not known is left out; both are if a shard was made from another probe.
    """
    frozen = digest(probe)
    if any(frozen not in read_manifest(scores)["input_digests"].values() for scores in (before, after)):
        return {}
    first, last = _probe_votes(probe, before), _probe_votes(probe, after)
    found = {
        name: change_of_two_shares(_probe_shares(first, name), _probe_shares(last, name), weight=weight)
        for name, weight in PROBE_WEIGHTS.items()
    }
    return {name: interval for name, interval in found.items() if interval is not None}


def _probe_votes(probe: Path, scores: Path) -> pl.DataFrame:
    """The valid votes of a scores shard on the labelled steps: task_id, outcome, truth, score, right."""
    episodes, _, judgements = read_iteration(probe, scores)
    known = _probe_labels(probe).join(episodes.select("trajectory_id", "outcome"), on="trajectory_id")
    return _valid_votes(known.with_columns(truth=pl.col("label")), judgements)


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
    side = pl.col("truth") if name == "balanced" else pl.col("outcome")
    hit = pl.col("score") == side
    counted = votes.group_by("task_id").agg(
        plus=(hit & (side > 0)).sum(),
        all_plus=(side > 0).sum(),
        minus=(hit & (side < 0)).sum(),
        all_minus=(side < 0).sum(),
    )
    return {
        row["task_id"]: ((row["plus"], row["all_plus"]), (row["minus"], row["all_minus"]))
        for row in counted.sort("task_id").iter_rows(named=True)
    }
