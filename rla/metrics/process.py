"""The reward model's votes against fact: did the step help?

Two truths about a step, both from the environment's own solver:

    process    the step's label: it came nearer than the episode had ever been, or looked into a new, likely place
               while what is needed had not been seen
    distance   +1 iff less was left to do after the step than before it: exploring counts for nothing, winning back
               lost ground counts

Each gives the same figures over the valid votes of labelled steps (m votes of a step count m times):

    accuracy   P(S = truth), with an interval that takes the task as the unit (votes of one task resemble each other)
    good, bad  P(S = +1 | truth +1), P(S = -1 | truth -1);  balanced = their mean: 1/2 for a judge that does not look
    majority   P(sign of the step's mean vote = truth), over steps; a tie counts one half
    won, lost  accuracy on the steps of episodes with this outcome

and, of the steps themselves: the share that helped, `label_mu` (what mu a judge without error would have), and the
share of the way that an episode covered, 1 - min_i after_i / before_0. A quantity without data is null.
"""

from __future__ import annotations

import polars as pl

from rla.metrics.intervals import clustered

Metrics = dict[str, float | int | None]

STEP = ["trajectory_id", "step"]


def process_metrics(episodes: pl.DataFrame, judgements: pl.DataFrame, labels: pl.DataFrame) -> Metrics:
    """All of the above as flat numbers, named as in an iteration's metrics file.

    `episodes`: trajectory_id, outcome. `judgements`: trajectory_id, step, score (+1, -1, null). `labels`:
    trajectory_id, task_id, step, label (+1, -1), before, after (`rla.rollouts.labels`). Other episodes' rows do not
    count.
    """
    known = labels.join(episodes.select("trajectory_id", "outcome"), on="trajectory_id")
    distances = known.drop_nulls(["before", "after"])
    closer = pl.when(pl.col("after") < pl.col("before")).then(1).otherwise(-1)
    helped = known.with_columns(truth=pl.col("label"))
    nearer = distances.with_columns(truth=closer)
    return {
        "labelled_steps": known.height,
        **accuracy_metrics("rm_process", helped, judgements),
        **accuracy_metrics("rm_distance", nearer, judgements),
        "good_steps": known_share(helped.select((pl.col("truth") > 0).mean())),
        "closer_steps": known_share(nearer.select((pl.col("truth") > 0).mean())),
        "label_mu": label_mu(helped),
        **covered(known),
    }


def accuracy_metrics(prefix: str, steps: pl.DataFrame, judgements: pl.DataFrame) -> Metrics:
    """`<prefix>_accuracy` and its companions. `steps`: trajectory_id, task_id, step, outcome, truth (+1, -1)."""
    votes = against(steps, judgements)
    interval = clustered([(row["right"], row["votes"]) for row in by_task(votes).iter_rows(named=True)])
    good = known_share(votes.filter(pl.col("truth") > 0).select(pl.col("right").mean()))
    bad = known_share(votes.filter(pl.col("truth") < 0).select(pl.col("right").mean()))
    found: Metrics = {
        "votes": votes.height,
        "accuracy": interval.estimate if interval else None,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "good": good,
        "bad": bad,
        "balanced": None if good is None or bad is None else (good + bad) / 2,
        "majority": majority(votes),
        "won": known_share(votes.filter(pl.col("outcome") > 0).select(pl.col("right").mean())),
        "lost": known_share(votes.filter(pl.col("outcome") < 0).select(pl.col("right").mean())),
    }
    return {f"{prefix}_{name}": value for name, value in found.items()}


def against(steps: pl.DataFrame, judgements: pl.DataFrame) -> pl.DataFrame:
    """The valid votes on `steps`, each beside the step's `truth` and whether it is `right`."""
    return (
        judgements.select(*STEP, "score")
        .drop_nulls()
        .join(steps.select(*STEP, "task_id", "outcome", "truth"), on=STEP)
        .with_columns(right=pl.col("score") == pl.col("truth"))
    )


def accuracy_by_task(known: pl.DataFrame, judgements: pl.DataFrame) -> pl.DataFrame:
    """Per task with labels: task_id, good_steps, process_votes, process_accuracy (null without votes).

    `known`: labels with the outcome of their episode.
    """
    steps = known.with_columns(truth=pl.col("label"))
    return (
        steps.group_by("task_id")
        .agg(good_steps=(pl.col("truth") > 0).mean())
        .join(by_task(against(steps, judgements)), on="task_id", how="left")
        .select(
            "task_id",
            "good_steps",
            process_votes=pl.col("votes").fill_null(0),
            process_accuracy=pl.col("right") / pl.col("votes"),
        )
    )


def by_task(votes: pl.DataFrame) -> pl.DataFrame:
    """Per task the votes and how many of them are `right`, in order of task_id."""
    return votes.group_by("task_id").agg(right=pl.col("right").sum(), votes=pl.len()).sort("task_id")


def majority(votes: pl.DataFrame) -> float | None:
    """Share of the steps whose mean vote has the sign of the truth."""
    steps = votes.group_by(STEP).agg(pl.col("score").cast(pl.Int32).sum(), pl.col("truth").first())
    agreement = pl.col("score") * pl.col("truth")
    half = pl.when(agreement == 0).then(0.5).otherwise((agreement > 0).cast(pl.Float64))
    return known_share(steps.select(half.mean()))


def label_mu(steps: pl.DataFrame) -> float | None:
    """P(truth = +1 | success) + P(truth = -1 | failure)."""
    plus = known_share(steps.filter(pl.col("outcome") > 0).select((pl.col("truth") > 0).mean()))
    minus = known_share(steps.filter(pl.col("outcome") < 0).select((pl.col("truth") < 0).mean()))
    return None if plus is None or minus is None else plus + minus


def coverage(known: pl.DataFrame) -> pl.DataFrame:
    """Per episode (trajectory_id, task_id, outcome) `covered`: how much of the way it had done at its nearest point.

    Episodes whose distance is not known, or has no end at the start, are left out.
    """
    first = pl.col("before").sort_by("step").first()
    return (
        known.drop_nulls(["before", "after"])
        .group_by("trajectory_id", "task_id", "outcome", maintain_order=True)
        .agg(start=first, covered=(1 - pl.col("after").min() / first).clip(0, 1))
        .filter(pl.col("start").is_between(0, float("inf"), closed="none"))
        .select("trajectory_id", "task_id", "outcome", "covered")
    )


def covered(known: pl.DataFrame) -> Metrics:
    episodes = coverage(known)
    return {
        "distance_covered": known_share(episodes.select(pl.col("covered").mean())),
        "distance_covered_lost": known_share(episodes.filter(pl.col("outcome") < 0).select(pl.col("covered").mean())),
    }


def known_share(frame: pl.DataFrame) -> float | None:
    value = frame.item()
    return None if value is None else float(value)
