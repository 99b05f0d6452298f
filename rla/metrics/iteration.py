"""The metrics of an iteration: flat numbers for `dvc metrics` and the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from rla.metrics.diagnostics import diagnostics
from rla.metrics.process import process_metrics


def iteration_metrics(
    episodes: pl.DataFrame,
    steps: pl.DataFrame,
    judgements: pl.DataFrame,
    labels: pl.DataFrame,
    *,
    unlabelled: int,
    other_pictures: int | None,
    played: Mapping[str, int],
    decided: Mapping[str, Any],
) -> dict[str, Any]:
    """`labels`: those of steps, as `process_metrics` takes them; `unlabelled`: episodes without any; `other_pictures`:
    episodes with labels whose replay showed another picture. `played` and `decided`: the counts of the trajectories'
    and of the verdicts' manifests.
    """
    count = max(played["steps"], 1)
    return {
        **diagnostics(episodes, judgements, steps),
        **process_metrics(episodes, judgements, labels),
        "unlabelled_episodes": unlabelled,
        "replays_with_other_pictures": other_pictures,
        "invalid_actions": played["invalid_actions"] / count,
        "truncated": played["truncated"] / count,
        "context_stops": played["context_stops"],
        "errors": played["env_errors"],
        **decided,
    }
