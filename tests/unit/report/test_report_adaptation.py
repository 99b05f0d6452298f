"""The tables of adaptation from the metrics of two iterations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rla.cli.app import run
from rla.report.collect import collect
from rla.report.tables import tables_of_run
from rla.store.manifest import MANIFEST

COUNTS: dict[str, Any] = {"pending": 0, "accepted": 0, "accepted_harder": 0, "accepted_easier": 0, "returned": 0}
COUNTS |= {"accepted_total": 0, "adapted_slots": 0, "pool_depth_mean": 0.0, "expert_success": None, "by_edit": {}}


def rows(run: Path, title: str) -> tuple[tuple[str, ...], ...]:
    (table,) = (table for table in tables_of_run(collect(run)) if table.title == title)
    return table.rows


def write(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


@pytest.fixture
def adapted(tmp_path: Path) -> Path:
    """Iteration 1 asks for two tasks, of three proposals; 2 accepts one of them and asks for nothing."""
    folder = tmp_path / "run"
    asked = {"chosen": 2, "proposed": 3, "valid": 2}
    proposed = {
        "harder": {"goal": {"proposed": 2, "tried": 2, "valid": 1}},
        "easier": {"hint": {"proposed": 1, "tried": 1, "valid": 1}},
    }
    write(folder / "1/metrics.json", COUNTS)
    write(folder / "1/candidates" / MANIFEST, {"counts": asked | {"by_edit": proposed}})
    judged = {"pending": 2, "accepted": 1, "accepted_harder": 1, "accepted_total": 1, "adapted_slots": 1}
    judged |= {"pool_depth_mean": 0.125, "expert_success": 0.5, "expert_steps": 14.25}
    judged |= {"parent_expert_success": 0.75, "parent_expert_steps": 9.5}
    judged |= {"root_expert_success": 1.0, "root_expert_steps": 7.0}
    kinds = {"harder": {"goal": {"measured": 1, "accepted": 1}}, "easier": {"hint": {"measured": 1, "accepted": 0}}}
    write(folder / "2/metrics.json", COUNTS | judged | {"by_edit": kinds})
    write(folder / "2/candidates" / MANIFEST, {"counts": {"chosen": 0, "proposed": 0, "valid": 0, "by_edit": {}}})
    return folder


def test_an_iteration_judges_what_the_one_before_proposed(adapted: Path) -> None:
    assert rows(adapted, "Adaptation") == (
        ("1", "0", "0", "0", "0", "0", "0", "2", "0.000", "-", "-", "-"),
        ("2", "2", "1", "0", "0", "1", "1", "0", "0.125", "50.0%", "75.0%", "100.0%"),
    )


def test_edits_are_counted_from_proposal_to_acceptance(adapted: Path) -> None:
    assert rows(adapted, "Edits") == (
        ("easier", "hint", "1", "1", "1", "1", "0"),
        ("harder", "goal", "2", "2", "1", "1", "1"),
    )


def test_a_run_without_adaptation_shows_none_of_it(tmp_path: Path) -> None:
    write(tmp_path / "run/1/metrics.json", {"success": 0.5})
    titles = {table.title for table in tables_of_run(collect(tmp_path / "run"))}
    assert "Training" in titles and not titles & {"Adaptation", "Edits"}


def test_the_report_writes_the_cumulative_series(adapted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "--run", str(adapted)]) == 0
    assert "on roots" in capsys.readouterr().out
    report = json.loads((adapted / "report/report.json").read_text())
    history = report["iterations"]
    assert [row["accepted_total"] for row in history] == [0, 1]
    assert [row["tasks_proposed"] for row in history] == [3, 0]
    assert history[1]["root_expert_success"] == 1.0
    assert report["edits"]["harder"]["goal"]["accepted"] == 1
