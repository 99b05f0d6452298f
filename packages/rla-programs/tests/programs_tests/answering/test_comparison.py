"""What runs reached with k answers to a question, side by side."""

from __future__ import annotations

from pathlib import Path

from rla_programs.answering.at_k import Answered, figures_at_k
from rla_study.comparing.compare import comparison, comparison_tables
from study_tests.comparing.builders import LITTLE, MUCH, made_run, params, write_json_file

from rla.store.manifest import read_json


def test_each_run_has_a_line_where_it_was_given_several_answers(tmp_path: Path) -> None:
    """Two answers to one question, of which one or both are right; the third run has no such figures."""
    runs = [made_run(tmp_path / name, {2: LITTLE}, config=params(weight)) for name, weight in (("x", 1.0), ("y", 0.5))]
    runs.append(made_run(tmp_path / "z", {2: MUCH}, config=params(0.7)))
    for run, right in zip(runs, ([True, False], [True, True]), strict=False):
        place = run / "eval/2/metrics.json"
        found = figures_at_k({"q": Answered(source="s", right=right)})
        write_json_file(place, {**read_json(place), "at_k": found})
    (table,) = [one for one in comparison_tables(comparison(runs)) if one.title == "Held-out answers"]
    assert table.columns == ("run", "avg@2", "95% interval", "pass@2", "95% interval")
    assert [(row[0], row[1], row[3]) for row in table.rows] == [("x", "50.0%", "100.0%"), ("y", "100.0%", "100.0%")]
    assert table.note == "after iteration 2, each run on all of its questions"


def test_runs_without_such_figures_have_no_table(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / name, {2: LITTLE}, config=params()) for name in ("x", "y")]
    assert not [one for one in comparison_tables(comparison(runs)) if one.title == "Held-out answers"]
