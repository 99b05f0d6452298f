"""Metrics and tables that packages add to every run.

A package names a class of the group `rla.tables`, which is made without arguments:

    [project.entry-points."rla.tables"]
    guess-number = "guess_number:GuessTables"

The class has any of these members; a class without any is ignored.

| protocol | members | used by |
|---|---|---|
| `Measures` | `measure` | compute-rewards and evaluate: `metrics.json` |
| `Follows` | `figures` | report, trackers and DVC: curves over iterations |
| `Names` | `named` | trackers and ablations: numbers of an evaluation by a short name |
| `Joins` | `joined`, `told` | rollout, evaluate, report: figures of services (`rla.envs.protocols.Measured`) |
| `rla.report.tables.Tabulates` | `tables` | report |
| `rla.report.render.Illustrates` | `sections` | report: `report.html` |
| `rla.pipeline.run.Accompanies` | `accompany` | `rla run`: what it says between stages |

All installed classes are asked about every run. One that does not apply to a run returns nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from rla.config import Config
from rla.errors import UserError
from rla.plugins import loaded, registered
from rla.store.records import Task

GROUP = "rla.tables"
T = TypeVar("T")


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


@runtime_checkable
class Measures(Protocol):
    def measure(self, trajectories: Path, config: Config, *, held_out: Sequence[Task]) -> dict[str, Any]:
        """Keys to add to the `metrics.json` of a complete trajectory shard. `held_out`: the tasks of an evaluation;
        empty for an iteration. Values are JSON; values of `figures` are flat numbers.
        """
        ...


@runtime_checkable
class Follows(Protocol):
    figures: Sequence[Figure]


@runtime_checkable
class Names(Protocol):
    def named(self, row: Mapping[str, Any]) -> dict[str, float]:
        """Numbers of the metrics of an evaluation, such as `pass@8`."""
        ...


@runtime_checkable
class Joins(Protocol):
    def joined(self, found: Sequence[Mapping[str, float]]) -> dict[str, float]:
        """The figures of several services that are not simply their sum."""
        ...

    def told(self, figures: Mapping[str, float]) -> str:
        """One line about joined figures; empty if none is known."""
        ...


def brought(ability: type[T]) -> list[T]:
    """The objects of all packages that have the members of `ability`, ordered by entry name. Raises UserError if one
    cannot be imported or made.
    """
    return [one for one in registered_objects().values() if isinstance(one, ability)]


@cache
def registered_objects() -> dict[str, Any]:
    return {name: loaded(entry, instance=True) for name, entry in registered(GROUP).items()}


def add_metrics(metrics: dict[str, Any], trajectories: Path, config: Config, *, held_out: Sequence[Task] = ()) -> None:
    """Add the metrics that packages measure. Raises UserError for a key that is there already."""
    for one in brought(Measures):
        found = one.measure(trajectories, config, held_out=held_out)
        if taken := sorted(found.keys() & metrics.keys()):
            raise UserError(f"{GROUP}: {type(one).__name__} measures {taken[0]}, which metrics.json has already")
        metrics |= found


def followed_figures() -> list[Figure]:
    return [figure for one in brought(Follows) for figure in one.figures]


def brought_numbers(row: Mapping[str, Any]) -> dict[str, float]:
    return {name: value for one in brought(Names) for name, value in one.named(row).items()}


def joined_figures(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The figures of all services together: sums, unless a package joins them in another way."""
    joined: dict[str, float] = {}
    for figures in found:
        for name, value in figures.items():
            joined[name] = joined.get(name, 0) + value
    for one in brought(Joins) if joined else ():
        joined |= one.joined(found)
    return joined


def told_figures(figures: Mapping[str, float]) -> str:
    return "; ".join(told for one in brought(Joins) if (told := one.told(figures)))
