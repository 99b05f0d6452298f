"""How a reward model judges the frozen probe (`rla.rollouts.evaluating`), with intervals over its tasks.

    probe_balanced   (P(S = +1 | label +1) + P(S = -1 | label -1)) / 2      1/2 for a judge that does not look
    probe_mu         P(S = +1 | won) + P(S = -1 | lost)                     1 for a judge that does not look
    probe_good, probe_bad    the two shares of probe_balanced

Each is over the valid votes. `probe_steps` counts the labelled steps, `probe_votes` the valid votes on them.

Two shares count as one figure, with tasks as clusters, and so does its change:

    f = w * (p_1 + p_2),   p_k = sum_t Y_kt / sum_t n_kt        balanced accuracy: w = 1/2;  mu = p+ + p-: w = 1
    u_t = w * sum_k (Y_kt - p_k n_kt) / N_k,                    Var(f) = G/(G-1) * sum_t u_t^2
    change = f_after - f_before on the same tasks,              u_t of `after` minus that of `before`

Votes of one task resemble each other, and a task has steps of both kinds, so both shares vary together. If no task
differs from the others, or there are fewer than two, nothing is known of the spread and there is no interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from pathlib import Path

import polars as pl

from rla.errors import UserError
from rla.metrics.intervals import Interval, quantile
from rla.metrics.process import against, known_share
from rla.store.digests import digest
from rla.store.frames import read_iteration
from rla.store.reading import read_manifest
from rla.store.record import read_json

Counts = tuple[int, int]  # successes, trials
NOTHING: tuple[Counts, Counts] = ((0, 0), (0, 0))
Shares = Mapping[str, tuple[Counts, Counts]]  # of each task, for both shares


def two_shares(tasks: Shares, *, weight: float) -> Interval | None:
    """The figure with its interval; None where a share has no trials, or nothing is known of the spread."""
    figure = joined_shares(tasks, weight)
    if figure is None:
        return None
    return _interval(figure, [_influence(tasks, name, weight) for name in sorted(tasks)], 0.0, 2 * weight)


def change_of_two_shares(before: Shares, after: Shares, *, weight: float) -> Interval | None:
    """What was gained from `before` to `after`; a task may be missing where nothing of it counts."""
    first, second = joined_shares(before, weight), joined_shares(after, weight)
    if first is None or second is None:
        return None
    influence = [
        _influence(after, name, weight) - _influence(before, name, weight)
        for name in sorted(before.keys() | after.keys())
    ]
    return _interval(second - first, influence, -2 * weight, 2 * weight)


def _totals(tasks: Shares) -> list[Counts]:
    return [(sum(pair[k][0] for pair in tasks.values()), sum(pair[k][1] for pair in tasks.values())) for k in (0, 1)]


def joined_shares(tasks: Shares, weight: float) -> float | None:
    """The figure alone; None where a share has no trials."""
    totals = _totals(tasks)
    if not all(trials for _, trials in totals):
        return None
    return weight * sum(found / trials for found, trials in totals)


def _influence(tasks: Shares, name: str, weight: float) -> float:
    pairs = zip(tasks.get(name, NOTHING), _totals(tasks), strict=True)
    return weight * sum((found - all_found / trials * count) / trials for (found, count), (all_found, trials) in pairs)


def _interval(figure: float, influence: list[float], least: float, most: float) -> Interval | None:
    squares = sum(value * value for value in influence)
    if len(influence) < 2 or squares < 1e-18:
        return None
    half = quantile(0.95) * sqrt(len(influence) / (len(influence) - 1) * squares)
    return Interval(figure, max(least, figure - half), min(most, figure + half))


Figures = dict[str, float | int | None]
LABELS = "labels.json"  # beside the episodes: {"steps": [one object with the columns of LABEL, ...]}
LABEL = {"trajectory_id": pl.String, "step": pl.Int32, "task_id": pl.String, "label": pl.Int8}
WEIGHTS = {"balanced": 0.5, "mu": 1.0}


def probe_figures(votes: pl.DataFrame, *, steps: int) -> Figures:
    """All of the above, of the rows of `probe_votes`; `steps`: how many have a label."""
    found: Figures = {"probe_steps": steps, "probe_votes": votes.height}
    for name, weight in WEIGHTS.items():
        tasks = probe_shares(votes, name)
        interval = two_shares(tasks, weight=weight)
        found[f"probe_{name}"] = joined_shares(tasks, weight)
        found[f"probe_{name}_low"] = interval.low if interval else None
        found[f"probe_{name}_high"] = interval.high if interval else None
    for name, truth in (("good", 1), ("bad", -1)):
        found[f"probe_{name}"] = known_share(votes.filter(pl.col("truth") == truth).select(pl.col("right").mean()))
    return found


def probe_changes(probe: Path, before: Path, after: Path) -> dict[str, Interval]:
    """`balanced` and `mu` of the votes `after` minus those `before`, two scores shards of the same probe.

    A figure that is not known is left out. So are both where a shard was made from another probe.
    """
    frozen = digest(probe)
    if any(frozen not in read_manifest(scores)["input_digests"].values() for scores in (before, after)):
        return {}
    first, last = probe_votes(probe, before), probe_votes(probe, after)
    found = {
        name: change_of_two_shares(probe_shares(first, name), probe_shares(last, name), weight=weight)
        for name, weight in WEIGHTS.items()
    }
    return {name: interval for name, interval in found.items() if interval is not None}


def probe_votes(probe: Path, scores: Path) -> pl.DataFrame:
    """The valid votes of a scores shard on the labelled steps: task_id, outcome, truth, score, right."""
    episodes, _, judgements = read_iteration(probe, scores)
    known = probe_labels(probe).join(episodes.select("trajectory_id", "outcome"), on="trajectory_id")
    return against(known.with_columns(truth=pl.col("label")), judgements)


def probe_labels(probe: Path) -> pl.DataFrame:
    """The labels beside the episodes. Raises UserError where they are missing or damaged."""
    path = probe.with_name(LABELS)
    try:
        return pl.DataFrame(read_json(path)["steps"], schema=LABEL)
    except (OSError, KeyError, TypeError, pl.exceptions.PolarsError):
        raise UserError(
            f"{path}: not the labels of a probe; remove {path.parent} and call rla evaluate again"
        ) from None


def probe_shares(votes: pl.DataFrame, name: str) -> Shares:
    """Per task what the two shares of `balanced` or of `mu` count."""
    side = pl.col("truth") if name == "balanced" else pl.col("outcome")
    hit = pl.col("score") == side
    counted = votes.group_by("task_id").agg(
        *(
            expression
            for key, of in (("plus", side > 0), ("minus", side < 0))
            for expression in ((hit & of).sum().alias(key), of.sum().alias(f"all_{key}"))
        )
    )
    return {
        row["task_id"]: ((row["plus"], row["all_plus"]), (row["minus"], row["all_minus"]))
        for row in counted.sort("task_id").iter_rows(named=True)
    }
