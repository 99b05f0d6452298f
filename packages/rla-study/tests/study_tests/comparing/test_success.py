"""Held-out success of runs, paired by task: numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from rla_study.comparing.compare import Comparison, comparison, comparison_headline, comparison_tables

from rla.report.tables import Table
from study_tests.comparing.builders import LITTLE, MUCH, NOTHING, evaluated, made_run, params


def table(found: Comparison, title: str) -> Table:
    return next(one for one in comparison_tables(found) if one.title == title)


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    """One of four tasks won against three of four."""
    base = made_run(tmp_path / "base", {0: NOTHING, 2: LITTLE}, config=params())
    return [base, made_run(tmp_path / "half", {0: NOTHING, 2: MUCH}, config=params(0.5))]


def test_the_difference_is_paired_by_task(pair: list[Path]) -> None:
    """Influences of a, b, c, d on the difference, each over 4: 1/4 - 3/4, 1/4 + 1/4, 1/4 + 1/4, -3/4 + 1/4. Their
    squares add up to 1/16, so the half-width is 1.96 sqrt(4/3 1/16) = 56.6 points."""
    success = table(comparison(pair), "Held-out success")
    base, half = success.rows
    assert base[:4] == ("base", "1", "0.0%", "25.0%") and base[5:] == ("base", "-")
    assert half[:4] == ("half", "1", "0.0%", "75.0%") and half[5:] == ("+50.0", "-6.6 to +100.0")
    assert success.note.startswith("after iteration 2, on the 4 tasks that all played; base: base; ")
    assert list(comparison_headline(comparison(pair))) == [
        "held-out success after iteration 2, half minus base: +50.0 points, 95% interval -6.6 to +100.0",
        "half and base differ in credit.step_weight 0.5 against 1.0",
    ]


def test_another_run_may_be_the_base(pair: list[Path]) -> None:
    rows = table(comparison(pair, base=pair[1]), "Held-out success").rows
    assert [row[0] for row in rows] == ["half", "base"]
    assert rows[1][5:] == ("-50.0", "-100.0 to +6.6")


def test_runs_are_compared_on_the_tasks_that_all_have(pair: list[Path], tmp_path: Path) -> None:
    """Of a, b, c, e the third run wins e alone: none of the three tasks that the others have, too."""
    third = made_run(tmp_path / "third", {2: {"a": [-1], "b": [-1], "c": [-1], "e": [1]}}, config=params(0.7))
    success = table(comparison([*pair, third]), "Held-out success")
    assert "on the 3 tasks that all played, of 4 that each played" in success.note
    assert [row[3] for row in success.rows] == ["33.3%", "100.0%", "0.0%"]
    other = made_run(tmp_path / "other", {2: {"x": [1]}}, config=params(0.9))
    success = table(comparison([*pair, other]), "Held-out success")
    assert "no held-out task was played by all" in success.note
    assert {row[3] for row in success.rows} == {"-"}


def test_all_runs_are_read_at_the_last_iteration_that_all_have(pair: list[Path]) -> None:
    evaluated(pair[1], 4, NOTHING)
    assert "after iteration 2," in table(comparison(pair), "Held-out success").note
    both = table(comparison(pair, at=[2, 0]), "Held-out success")
    assert "after iterations 0 and 2," in both.note
    assert [row[3] for row in both.rows] == ["12.5%", "37.5%"]


def test_a_run_that_is_not_so_far_says_it_and_holds_no_other_back(pair: list[Path], tmp_path: Path) -> None:
    young = made_run(tmp_path / "young", {0: NOTHING}, config=params(0.7), metrics=[{}])
    found = comparison([*pair, young])
    assert [row[3] for row in table(found, "Held-out success").rows] == ["25.0%", "75.0%", "-"]
    assert table(found, "What is missing").rows == (
        ("young", "it has 1 of 2 iterations"),
        ("young", "it was not evaluated after iteration 2, only after iteration 0"),
    )


def test_models_that_were_not_trained_are_not_compared_in_place_of_trained_ones(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path / "five", {0: LITTLE, 5: MUCH}, config=params()),
        made_run(tmp_path / "eight", {0: NOTHING, 8: MUCH}, config=params(0.5)),
    ]
    found = comparison(runs)
    success = table(found, "Held-out success")
    assert success.note.startswith("no iteration after the start was evaluated in all runs; ")
    assert {row[3] for row in success.rows} == {"-"}
    assert next(comparison_headline(found)) == f"held-out success: {success.note}"
    assert ("five", "it was evaluated only after iterations 0 and 5") in table(found, "What is missing").rows
    assert "after iteration 0, eight minus five: -25.0" in next(comparison_headline(comparison(runs, at=[0])))


def test_runs_that_were_evaluated_at_the_start_alone_are_compared_there(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / name, {0: won}, config=params()) for name, won in (("a", LITTLE), ("b", MUCH))]
    assert "after iteration 0, b minus a: +50.0" in next(comparison_headline(comparison(runs)))


def test_every_split_is_compared_by_its_name(pair: list[Path], tmp_path: Path) -> None:
    """What is the main split of one run is a further one of the other."""
    evaluated(pair[1] / "splits/unseen", 2, NOTHING, split="unseen")
    turned = made_run(tmp_path / "turned", {}, config=params())
    evaluated(turned, 2, MUCH, split="unseen")
    evaluated(turned / "splits/test", 2, LITTLE)
    found = comparison([turned, pair[1]])
    assert table(found, "Held-out success, unseen").rows[1][5] == "-75.0"
    assert table(found, "Held-out success, test").rows[1][5] == "+50.0"
    said = "held-out success on unseen after iteration 2, half minus turned: -75.0"
    assert any(said in line for line in comparison_headline(found))


def test_seeds_of_equal_parameters_are_one_line(pair: list[Path], tmp_path: Path) -> None:
    """Of the second seeds one wins nothing and one wins two: 1/8 of the base's, 5/8 of the others."""
    two = {**NOTHING, "a": [1], "b": [1]}
    more = [
        made_run(tmp_path / "base-seed1", {2: NOTHING}, config=params(seed=1)),
        made_run(tmp_path / "half-seed1", {2: two}, config=params(0.5, seed=1)),
    ]
    found = comparison([*pair, *more])
    rows = table(found, "Held-out success").rows
    assert [row[:2] for row in rows] == [("base", "2"), ("half", "2")]
    assert [row[3] for row in rows] == ["12.5%", "62.5%"] and rows[1][5] == "+50.0"
    low, high = map(float, rows[1][6].split(" to "))
    assert low < 50 < high
    assert table(found, "Parameters that differ").rows == (("credit.step_weight", "1.0", "0.5"),)


def test_parameters_without_an_effect_on_outputs_keep_no_seeds_apart(pair: list[Path], tmp_path: Path) -> None:
    """Where a judge of its own answers, and how many programs run at once."""
    one, other = (
        {"judge": {"server": {"url": url}}, "env": {"name": "coding", "own": {"execution": {"workers": workers}}}}
        for url, workers in (("http://one/v1", 0), ("http://other/v1", 3))
    )
    runs = [
        made_run(tmp_path / "full0", {2: LITTLE}, config=params(**one)),
        made_run(tmp_path / "full1", {2: MUCH}, config=params(seed=1, **other)),
    ]
    found = comparison([*runs, pair[1]])
    assert [row[:2] for row in table(found, "Held-out success").rows] == [("full", "2"), ("half", "1")]
    keys = {row[0] for row in table(found, "Parameters that differ").rows}
    assert keys == {"credit.step_weight", "env.name", "seed"}


def test_runs_that_differ_in_their_seed_alone_stand_side_by_side(pair: list[Path], tmp_path: Path) -> None:
    other = made_run(tmp_path / "again", {2: MUCH}, config=params(seed=1))
    found = comparison([pair[0], other])
    assert [row[0] for row in table(found, "Held-out success").rows] == ["base", "again"]
    assert "again and base differ in their seeds alone" in comparison_headline(found)
    assert table(found, "Parameters that differ").rows == (("seed", "0", "1"),)
