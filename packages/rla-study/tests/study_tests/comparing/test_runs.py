"""Which runs are compared, how they are called, and what their parameters, judges and costs were."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from rla_study.comparing.compare import comparison, comparison_headline, comparison_tables
from rla_study.comparing.curves import comparison_panels
from rla_study.comparing.runs import arms_of, compared_runs, distinguishing_names, with_newest
from rla_study.comparing.success import split_names

from rla.errors import UserError
from rla.report.tables import Table
from study_tests.comparing.builders import LITTLE, MUCH, NOTHING, made_run, params, write_json_file

JUDGED = (
    {"mu": 1.1, "rm_process_balanced": 0.6, "accepted": 2, "rejected": 1, "accepted_total": 2},
    {"mu": 1.2, "rm_process_balanced": 0.7, "accepted": 1, "rejected": 0, "accepted_total": 3},
    {"mu": 1.5, "accepted": 5, "accepted_total": 8},
)


def tables_by_title(folders: Sequence[Path], at: Sequence[int] = ()) -> dict[str, Table]:
    return {one.title: one for one in comparison_tables(comparison(folders, at=at))}


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    """The second run has one more iteration, is slower, and trained on more tokens."""
    base = made_run(tmp_path / "base", {0: NOTHING, 2: LITTLE}, config=params(), metrics=JUDGED[:2])
    half = made_run(tmp_path / "half", {0: NOTHING, 2: MUCH}, config=params(0.5), metrics=JUDGED, seconds=20.0)
    write_json_file(base / "1/policy/metrics.json", {"tokens": 100})
    write_json_file(half / "2/policy/metrics.json", {"tokens": 300})
    write_json_file(half / "3/policy/metrics.json", {"tokens": 1000})
    return [base, half]


def test_judge_tasks_and_cost_are_read_up_to_an_iteration_that_all_have(pair: list[Path]) -> None:
    found = tables_by_title(pair)
    assert found["Reward model"].rows == (
        ("base", "1.10", "1.20", "60.0%", "70.0%", "-", "-"),
        ("half", "1.10", "1.20", "60.0%", "70.0%", "-", "-"),
    )
    assert found["Changed tasks"].rows[1] == ("half", "-", "-", "3", "1", "-")
    assert found["Seconds"].rows == (
        ("base", "20.0", *["-"] * 6, "20.0", "60.0"),
        ("half", "40.0", *["-"] * 6, "40.0", "60.0"),
    )
    assert [row[4] for row in found["Played and trained"].rows] == ["100", "300"]
    assert tables_by_title(pair, at=[0])["Held-out success"].rows[1][5] == "+0.0"


def test_a_table_without_a_figure_is_left_out(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / name, {2: LITTLE}, config=params(weight)) for name, weight in (("a", 1.0), ("b", 0.5))]
    assert set(tables_by_title(runs)) == {"Held-out success", "Parameters that differ", "Seconds"}


def test_parameters_that_differ(tmp_path: Path) -> None:
    """Nested keys, lists, and keys of one run alone."""
    first = params(0.3, env={"name": "alfworld", "own": {}}, splits=["a"])
    second = params(0.3, seed=4, env={"name": "alfworld", "own": {"id": "x"}}, splits=["a", "b"])
    runs = [made_run(tmp_path / name, {2: MUCH}, config=one) for name, one in (("a", first), ("b", second))]
    found = tables_by_title(runs)
    assert found["Parameters that differ"].columns == ("parameter", "a", "b")
    assert found["Parameters that differ"].rows == (
        ("env.own", "{}", "not there"),
        ("splits", '["a"]', '["a", "b"]'),
        ("env.own.id", "not there", "x"),
        ("seed", "0", "4"),
    )


def test_many_parameters_are_counted_and_equal_ones_are_said(tmp_path: Path) -> None:
    many = {f"k{number}": number for number in range(4)}
    first, equal, other = (tmp_path / name for name in ("first", "equal", "other"))
    for folder, config in ((first, params()), (equal, params()), (other, params(**many))):
        made_run(folder, {2: LITTLE}, config=config)
    lines = list(comparison_headline(comparison([first, equal, other])))
    assert lines[-2:] == ["equal and first have equal parameters", "other and first differ in 4 parameters"]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/r/a", "/r/b"], ["a", "b"]),
        (["/r/full/seed0/run", "/r/full/seed1/run", "/r/step/seed0/run"], ["full/seed0", "full/seed1", "step/seed0"]),
        (["/a", "/b/a"], ["a", "b/a"]),
        (["/r/x", "/r/x/y"], ["x", "x/y"]),
        (["/r/a\x1b[1m\n", "/r/b"], ["a [1m", "b"]),
    ],
)
def test_a_run_is_called_by_what_differs_in_its_path(paths: list[str], names: list[str]) -> None:
    assert [name.removeprefix("/") for name in distinguishing_names([Path(path) for path in paths])] == names


def test_arms_are_called_by_what_their_runs_share(tmp_path: Path) -> None:
    places = [(arm, seed) for arm in ("full", "step") for seed in (0, 1)]
    runs = [
        made_run(tmp_path / arm / f"seed{seed}/run", {2: LITTLE}, config=params(len(arm) + (arm == "full"), seed))
        for arm, seed in places
    ]
    assert [(arm.name, len(arm.runs)) for arm in arms_of(compared_runs(runs))] == [("full", 2), ("step", 2)]


def test_what_is_no_run_is_refused_by_name(pair: list[Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folders, said in (
        ([pair[0], tmp_path / "absent"], "absent: no such run"),
        ([pair[0], tmp_path / "empty"], "empty: nothing was played or evaluated"),
        ([pair[0]], "at least two"),
        ([pair[0], pair[1], pair[0]], "base: given twice"),
    ):
        with pytest.raises(UserError, match=said):
            comparison(folders)
    with pytest.raises(UserError, match=r"--at 7: no run was evaluated at that iteration; evaluated ones: 0, 2"):
        comparison(pair, at=[7])


def test_curves_lie_over_each_other_and_seeds_are_a_band(pair: list[Path], tmp_path: Path) -> None:
    """The second seed of the base has a mu of 1.5 where the first has 1.1."""
    again = made_run(tmp_path / "base1", {2: MUCH}, config=params(seed=1), metrics=[{"mu": 1.5}, {"mu": 1.2}])
    arms = arms_of(compared_runs([*pair, again]))
    panels = {panel.title: panel for panel in comparison_panels(arms, split_names(arms))}
    base, half = panels["mu: the reward model helps above 1"].lines
    assert (base.label, base.x, base.y, base.low, base.high) == ("base", (1, 2), (1.3, 1.2), (1.1, 1.2), (1.5, 1.2))
    assert (half.label, half.x, half.low) == ("half", (1, 2, 3), ())
    base, half = panels["Held-out success"].lines
    assert (base.x, base.y, base.low, base.high) == ((2,), (50.0,), (25.0,), (75.0,))
    assert (half.x, half.y, half.low) == ((0, 2), (0.0, 75.0), (0.0, 37.5))


def test_the_newest_runs_stand_in_for_those_that_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    old, new = Path("runs/old"), Path("runs/new")
    for run, time in ((old, 1000), (new, 2000)):
        write_json_file(run / "timings/1-rollout.json", {})
        os.utime(run / "timings/1-rollout.json", (time, time))
    (tmp_path / "runs/ablation").mkdir()  # holds runs and is not one
    assert with_newest([]) == [old, new]
    assert with_newest([new]) == [new, old]
    assert with_newest([old]) == [old, new]
