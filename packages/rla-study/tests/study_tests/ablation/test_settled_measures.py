"""Pairs of arms by a measure, seed by seed, from hand-made numbers."""

from __future__ import annotations

from rla_study.ablation.design import Arm, Design
from rla_study.ablation.outcomes import ArmOutcome, RunOutcome
from rla_study.ablation.settled_measures import settled_measure_tables


def arm(name: str, *values: float | None) -> ArmOutcome:
    runs = tuple(
        RunOutcome(
            seed=seed,
            evaluations={0: {"a": [True]}, 2: {"a": [True]}},
            iterations=(),
            measured={2: {"success": 1.0} | ({} if value is None else {"probe": value})},
        )
        for seed, value in enumerate(values)
    )
    return ArmOutcome(arm=Arm(name=name, title=name, changes={}), runs=runs)


def design(*arms: ArmOutcome, measures: tuple[str, ...] = ("probe",)) -> Design:
    return Design(
        shared={},
        iterations=2,
        evaluate_every=2,
        seeds=(0, 1, 2),
        baseline="base",
        arms=tuple(found.arm for found in arms),
        comparisons=(("trained", "frozen"), ("trained", "base")),
        measures=measures,
    )


BASE, FROZEN = arm("base", None, None, None), arm("frozen", 0.5, 0.5, 0.5)


def test_a_measure_is_compared_in_pairs_of_seeds_even_where_the_baseline_lacks_it() -> None:
    """Differences 0.1, 0.2 and 0.3: deviation 0.1, standard error 0.1 / sqrt(3) = 0.0577, t of two degrees 4.303."""
    arms = [BASE, FROZEN, arm("trained", 0.6, 0.7, 0.8)]
    (table,) = settled_measure_tables(arms, design(*arms))
    assert table.title == "Seed by seed: probe"
    (line,) = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert (line["arm"], line["over"], line["seeds"], line["iteration"]) == ("trained", "frozen", "3", "2")
    assert (line["difference"], line["per seed"]) == ("+0.2 [-0.04841, +0.4484]", "+0.1 +0.2 +0.3")
    assert (line["apart"], line["a seed's deviation"]) == ("no", "0.1")
    # With five: (2.776 + 0.941) 0.1 / sqrt(5) = 0.166 is below 0.2; with four (3.182 + 0.978) 0.05 = 0.208 is not.
    assert line["seeds to settle"] == "5"


def test_a_seed_without_the_measure_is_left_out() -> None:
    arms = [BASE, FROZEN, arm("trained", 0.6, None, 0.8)]
    (table,) = settled_measure_tables(arms, design(*arms))
    assert table.rows[0][2] == "2"
    assert settled_measure_tables([BASE, FROZEN, arm("trained", 0.6, None, None)], design(*arms)) == []
    assert settled_measure_tables(arms, design(*arms), at=[1]) == []


def test_a_measure_of_the_iterations_is_not_read_where_a_run_has_not_come_to() -> None:
    """Seed 2 of the trained arm was evaluated at 2 alone: at 4 two seeds are compared."""

    def measured_each_iteration(name: str, *values: float) -> ArmOutcome:
        runs = tuple(
            RunOutcome(
                seed=seed,
                evaluations={
                    point: {"a": [True]} for point in ((0, 2) if (name, seed) == ("trained", 2) else (0, 2, 4))
                },
                iterations=tuple({"iteration": number, "mu": value} for number in (1, 2)),
            )
            for seed, value in enumerate(values)
        )
        return ArmOutcome(arm=Arm(name=name, title=name, changes={}), runs=runs)

    arms = [BASE, measured_each_iteration("frozen", 1.0, 1.0, 1.0), measured_each_iteration("trained", 1.1, 1.2, 1.3)]
    wanted = design(*arms, measures=("mu",))
    for at, seeds in ((2, "3"), (4, "2")):
        (table,) = settled_measure_tables(arms, wanted, at=[at])
        assert table.rows[0][2] == seeds
