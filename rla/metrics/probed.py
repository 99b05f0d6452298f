"""How a reward model judges the frozen probe (`rla.rollouts.evaluating`), with intervals over its tasks.

    probe_balanced   (P(S = +1 | label +1) + P(S = -1 | label -1)) / 2      1/2 for a judge that does not look
    probe_mu         P(S = +1 | won) + P(S = -1 | lost)                     1 for a judge that does not look
    probe_good, probe_bad    the two shares of probe_balanced

Each is over the valid votes. `probe_steps` counts the labelled steps, `probe_votes` the valid votes on them.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from rla.errors import UserError
from rla.metrics.intervals import Interval
from rla.metrics.process import against
from rla.metrics.two_shares import Shares, change_of_two_shares, joined_shares, two_shares
from rla.store.digests import digest
from rla.store.frames import read_iteration
from rla.store.reading import read_manifest
from rla.store.slices import read_json

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
        share = votes.filter(pl.col("truth") == truth).select(pl.col("right").mean()).item()
        found[f"probe_{name}"] = None if share is None else float(share)
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
