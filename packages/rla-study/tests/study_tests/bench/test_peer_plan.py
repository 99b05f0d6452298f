"""How a bench with a peer is read: the choice of a learning rate, and what passes until a level is reached."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from study_tests.bench.peer.places import Places, curve_of
from study_tests.bench.peer.plan import (
    Arm,
    Cell,
    Point,
    Spent,
    choice_cells,
    chosen_rate,
    report_cells,
    spent_until,
    totals,
)


def curve(*points: tuple[float, float]) -> list[Point]:
    """Points of (episodes, success); a second of the processor and two of the clock pass with each episode."""
    return [Point(success=s, spent=Spent(episodes=e, cpu=e, wall=2 * e, tokens=100 * e)) for e, s in points]


def test_what_was_spent_lies_on_the_line_between_two_evaluations() -> None:
    # From 20% at 100 episodes to 30% at 300, so 25% is half of the way.
    found = spent_until(curve((0, 0.1), (100, 0.2), (300, 0.3)), 0.25)
    assert found == Spent(episodes=200, cpu=200, wall=400, tokens=20_000)


def test_the_first_crossing_counts_even_where_success_falls_again() -> None:
    found = spent_until(curve((0, 0.1), (100, 0.3), (200, 0.1), (300, 0.4)), 0.2)
    assert found is not None
    assert found.episodes == pytest.approx(50)


def test_a_level_that_is_never_reached_has_no_cost() -> None:
    assert spent_until(curve((0, 0.1), (100, 0.2)), 0.21) is None


def test_a_start_at_the_level_costs_nothing() -> None:
    assert spent_until(curve((0, 0.3), (100, 0.2)), 0.3) == Spent()


def test_a_success_that_equals_the_level_reaches_it() -> None:
    assert spent_until(curve((0, 0.1), (100, 0.2)), 0.2) == Spent(episodes=100, cpu=100, wall=200, tokens=10_000)


def test_the_rate_with_the_highest_success_is_chosen_and_of_equals_the_lowest() -> None:
    assert chosen_rate({1e-4: 0.2, 3e-4: 0.3, 1e-3: 0.3}) == 3e-4


def test_every_arm_and_rate_is_tried_with_a_seed_that_the_report_lacks() -> None:
    tried = choice_cells([Arm.LOOP, Arm.TRL], [1e-4, 1e-3], iterations=2)
    assert [(cell.arm, cell.rate) for cell in tried] == [
        (Arm.LOOP, 1e-4),
        (Arm.LOOP, 1e-3),
        (Arm.TRL, 1e-4),
        (Arm.TRL, 1e-3),
    ]
    reported = report_cells({Arm.LOOP: 1e-3}, range(3), iterations=2, evaluate_every=1)
    assert not {cell.seed for cell in tried} & {cell.seed for cell in reported}


def test_seeds_are_the_outer_loop_and_the_last_iteration_is_evaluated() -> None:
    cells = report_cells({Arm.OUTCOME: 1e-3, Arm.TRL: 1e-4}, [1, 2], iterations=5, evaluate_every=2)
    assert [cell.name for cell in cells] == [
        "outcome-lr0.001-seed1",
        "trl-lr0.0001-seed1",
        "outcome-lr0.001-seed2",
        "trl-lr0.0001-seed2",
    ]
    assert {cell.evaluated for cell in cells} == {(2, 4, 5)}


def test_a_curve_adds_up_what_the_parts_of_the_iterations_used(tmp_path: Path) -> None:
    places = Places(root=tmp_path, params=tmp_path / "params.yaml")
    cell = Cell(arm=Arm.TRL, rate=1e-3, seed=1, iterations=3, evaluated=(1, 3))
    lines = [
        {"iteration": i, "episodes": 4, "cpu": {"a": i, "b": 1}, "wall": {"a": 2}, "tokens": {"b": 10}}
        for i in (1, 2, 3)
    ]
    (places.cell(cell) / "eval").mkdir(parents=True)
    (places.cell(cell) / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for iteration, success in ((1, 0.2), (3, 0.4)):
        (places.cell(cell) / "eval" / f"{iteration}.json").write_text(json.dumps({"success": success}))
    # The processor's seconds: 1 + 1, then 2 + 1 and 3 + 1 more.
    assert curve_of(places, cell, 0.1) == [
        Point(success=0.1, spent=Spent()),
        Point(success=0.2, spent=Spent(episodes=4, cpu=2, wall=2, tokens=10)),
        Point(success=0.4, spent=Spent(episodes=12, cpu=9, wall=6, tokens=30)),
    ]
    assert totals(lines, "cpu") == {"a": 6, "b": 3}
