"""What the comparison with a peer runs and how it is read: arms, cells, the choice of a learning rate, time to a level.

arms       outcome  `rla` paid by outcomes alone          loop  `rla` with judge, both trainings and adaptation
           trl      TRL's GRPOTrainer, paid by outcomes
choice     every arm and rate with a seed of its own, a few iterations; the rate with the highest success on tasks
           that the report does not use. Of equals the lowest rate.
report     every arm at its rate and with every seed. What passes until success reaches a level is interpolated
           between the two evaluations around the first crossing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

CHOICE_SEED = 1000  # of the choice of learning rates; no seed of the report is so large


class Arm(StrEnum):
    """Who trains."""

    OUTCOME = "outcome"
    TRL = "trl"
    LOOP = "loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One training. `evaluated`: after which iterations its policy is played."""

    arm: Arm
    rate: float
    seed: int
    iterations: int
    evaluated: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.arm}-lr{self.rate:g}-seed{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a training has used so far: seconds of its process and of the clock, tokens through the model."""

    episodes: float = 0.0
    cpu: float = 0.0
    wall: float = 0.0
    tokens: float = 0.0

    def towards(self, other: Spent, share: float) -> Spent:
        """The point at `share` of the way."""
        values = {
            field.name: getattr(self, field.name) + share * (getattr(other, field.name) - getattr(self, field.name))
            for field in fields(self)
        }
        return Spent(**values)

    def __add__(self, other: Spent) -> Spent:
        return Spent(**{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Held-out success, a share, at what had been spent."""

    success: float
    spent: Spent


def choice_cells(arms: Sequence[Arm], rates: Sequence[float], *, iterations: int) -> list[Cell]:
    """One cell for each arm and rate, played after its last iteration."""
    return [
        Cell(arm=arm, rate=rate, seed=CHOICE_SEED, iterations=iterations, evaluated=(iterations,))
        for arm in arms
        for rate in rates
    ]


def report_cells(
    rates: Mapping[Arm, float], seeds: Sequence[int], *, iterations: int, evaluate_every: int
) -> list[Cell]:
    """Seeds are the outer loop, so that a bench which is stopped early has whole comparisons."""
    evaluated = tuple(sorted({*range(evaluate_every, iterations, evaluate_every), iterations}))
    return [
        Cell(arm=arm, rate=rate, seed=seed, iterations=iterations, evaluated=evaluated)
        for seed in seeds
        for arm, rate in rates.items()
    ]


def chosen_rate(success: Mapping[float, float]) -> float:
    """The learning rate with the highest success; of equals the lowest."""
    return min(success, key=lambda rate: (-success[rate], rate))


def spent_until(curve: Sequence[Point], level: float) -> Spent | None:
    """What was spent when success first reached `level`, on straight lines between the points; None: it never did."""
    before: Point | None = None
    for point in curve:
        if point.success >= level:
            if before is None:
                return point.spent
            return before.spent.towards(point.spent, (level - before.success) / (point.success - before.success))
        before = point
    return None


def totals(rows: Sequence[Mapping[str, Mapping[str, float]]], kind: str) -> dict[str, float]:
    """Sums by part over the iterations of a cell; `kind`: cpu, wall or tokens."""
    found: dict[str, float] = {}
    for row in rows:
        for part, value in row[kind].items():
            found[part] = found.get(part, 0.0) + value
    return found
