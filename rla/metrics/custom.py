"""Metrics and tables that packages add to every run.

A class in the entry-point group `rla.tables` is made without arguments and has any of these members:

| member | called by |
|---|---|
| `measure(trajectories, config, *, held_out)`: keys for `metrics.json` of a complete trajectory shard; `held_out`: the tasks of an evaluation, empty for an iteration | compute-rewards, evaluate |
| `figures: Sequence[Figure]` | report: curves over iterations |
| `joined(found) -> dict[str, float]`: the figures of several services (`rla.envs.protocols.Measured`) that are not simply their sum | rollout, evaluate, report |
| `told(figures) -> str`: one line about joined figures, empty if none is known | rollout, evaluate |
| `tables(summary) -> Sequence[rla.report.tables.Table]`: those without rows are left out | report |
| `sections(summary) -> Sequence[rla.report.render.Section]`: those without a body are left out | report: `report.html` |
| `accompany(plan, run, config, say) -> Callable[[str, list[str]], None]`: called before `rla run` begins; the function gets the name of each stage that has run and of those that follow, and an empty name once the report is printed | `rla run` |

All installed classes are asked about every run. One that does not apply to a run returns nothing. A package
may ask for further members itself (`brought`).
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.errors import UserError
from rla.plugins import loaded, registered
from rla.store.records import Task

GROUP = "rla.tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number of `metrics.json` that is followed over iterations, null if an iteration lacks it. `KEY_low` and
    `KEY_high` are the bounds of its interval.

    `panel`: title of its curve in the report; `tag`: name of its curve in trackers, as `group/name`. Either may be
    empty: no curve. `share`: it lies in [0, 1] and is shown in per cent.
    """

    key: str
    panel: str = ""
    tag: str = ""
    share: bool = False


def brought(member: str) -> list[Any]:
    """The objects of all packages that have this member, ordered by entry name. Raises UserError if one cannot be
    imported or made.
    """
    return [one for one in registered_objects().values() if hasattr(one, member)]


@cache
def registered_objects() -> dict[str, Any]:
    return {name: loaded(entry, instance=True) for name, entry in registered(GROUP).items()}


def add_metrics(metrics: dict[str, Any], trajectories: Path, config: Config, *, held_out: Sequence[Task] = ()) -> None:
    """Add the metrics that packages measure. Raises UserError for a key that is there already."""
    for one in brought("measure"):
        found = one.measure(trajectories, config, held_out=held_out)
        if taken := sorted(found.keys() & metrics.keys()):
            raise UserError(f"{GROUP}: {type(one).__name__} measures {taken[0]}, which metrics.json has already")
        metrics |= found


def followed_figures() -> list[Figure]:
    return [figure for one in brought("figures") for figure in one.figures]


def joined_figures(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The figures of all services together: sums, unless a package joins them in another way."""
    joined: dict[str, float] = {}
    for figures in found:
        for name, value in figures.items():
            joined[name] = joined.get(name, 0) + value
    for one in brought("joined") if joined else ():
        joined |= one.joined(found)
    return joined


def told_figures(figures: Mapping[str, float]) -> str:
    return "; ".join(told for one in brought("told") if (told := one.told(figures)))
