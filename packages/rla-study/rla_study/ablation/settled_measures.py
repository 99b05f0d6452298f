"""The pairs of arms that a design compares, seed by seed, for each of its measures.

`rla_study.ablation.settling` does the same for success. A measure is one number per seed, so the interval is Student's
t over seeds alone: it includes neither the sampling of tasks nor of a start that all seeds share.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from rla.report.tables import Table
from rla_study.ablation.design import Design
from rla_study.ablation.measures import DIGITS, bracketed, measured, shown_measure
from rla_study.ablation.outcomes import ArmOutcome
from rla_study.ablation.settling import TITLE, common_points, common_seeds, compared_arms, seeds_text
from rla_study.metrics.power import FEWEST, seeds_to_settle, spread_of_seeds
from rla_study.metrics.student import mean_of_seeds

COLUMNS: tuple[str, ...] = ("arm", "over", "seeds", "iteration", "difference", "per seed", "apart")
COLUMNS += ("a seed's deviation", "seeds to settle")


def settled_measure_tables(arms: Sequence[ArmOutcome], design: Design, *, at: Sequence[int] = ()) -> list[Table]:
    """One table per measure, left out if no pair has the measure in two common seeds."""
    tables = []
    note = (
        "difference of the measure, paired by seed, with a 95% interval by t over seeds alone: the tasks that it is "
        "measured on, and a start that seeds share, are not drawn anew"
    )
    for measure in design.measures:
        lines = (_settled_measure_line(*pair, measure, sorted(set(at))) for pair in compared_arms(arms, design))
        rows = tuple(line for line in lines if line)
        tables.append(Table(title=f"{TITLE}: {measure}", columns=COLUMNS, rows=rows, note=note))
    return [table for table in tables if table.rows]


def _settled_measure_line(
    found: ArmOutcome, over: ArmOutcome, measure: str, at: Sequence[int]
) -> tuple[str, ...] | None:
    """None if fewer than two common seeds were evaluated and have the measure at all of these iterations.

    A measure of the iterations would have a value even at iterations that a run has not reached, so evaluations decide.
    """
    pairs = common_seeds(found, over)
    read = at or common_points(pairs)[-1:]
    pairs = [pair for pair in pairs if set(read) <= set(common_points([pair]))]
    each = [
        [(measured(one, measure, point), measured(other, measure, point)) for point in read] for one, other in pairs
    ]
    whole = [[a - b for a, b in row if a is not None and b is not None] for row in each]
    differences = [sum(row) / len(row) for row in whole if row and len(row) == len(read)]
    if len(differences) < FEWEST:
        return None
    spread, seeds = spread_of_seeds(differences), len(differences)
    interval = mean_of_seeds(differences)
    return (
        found.arm.title,
        over.arm.title,
        str(seeds),
        " ".join(map(str, read)),
        f"{interval.estimate:+.{DIGITS}g} {bracketed(interval, sign='+')}",
        " ".join(f"{value:+.{DIGITS}g}" for value in differences),
        "yes" if interval.low > 0 or interval.high < 0 else "no",
        shown_measure(sqrt(spread.of_one_seed(games=1))),
        seeds_text(seeds_to_settle(interval.estimate, spread, games=1)),
    )
