"""The table of the last evaluation by kind of task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rla.report.collect import HeldOut, RunSummary
from rla.report.tables import Table, tables_of_run

X = {
    **{"episodes": 4, "success": 0.5, "success_low": 0.0546, "success_high": 0.9454, "mean_steps": 2.5},
    "stop_reasons": {"won": 2, "ended": 1, "max_steps": 1, "context": 0, "env_error": 0},
}
CELLS = ("4", "50.0%", "5.5-94.5%", "2.5", "2", "1", "1", "0", "0")


def kind_tables(summary: RunSummary) -> list[Table]:
    return [table for table in tables_of_run(summary) if table.title.startswith("Held-out tasks by")]


def summary(*evaluations: dict[str, Any], further: tuple[HeldOut, ...] = ()) -> RunSummary:
    return RunSummary(run=Path("r"), iterations=(), evaluations=evaluations, seconds={}, gain=None, further=further)


def test_each_kind_has_its_interval_its_steps_and_its_ends() -> None:
    """The last of two evaluations; the row of all has the same cells here."""
    (table,) = kind_tables(summary({"iteration": 0, "by_kind": {}}, {"iteration": 2, **X, "by_kind": {"x": X}}))
    assert table.columns[5:] == ("won", "ended", "max steps", "context full", "env errors")
    assert table.rows == (("x", *CELLS), ("all", *CELLS))


def test_stop_reasons_that_nobody_knows_are_absent() -> None:
    (table,) = kind_tables(
        summary({"iteration": 0, **X, "stop_reasons": None, "by_kind": {"x": {**X, "stop_reasons": None}}})
    )
    assert table.rows[0] == ("x", *CELLS[:4], *["-"] * 5)


def test_every_split_has_a_table_and_a_run_without_evaluations_has_no_rows() -> None:
    assert kind_tables(summary()) == []
    row = {"iteration": 0, "split": "test", **X, "by_kind": {"x": X}}
    found = kind_tables(summary(row, further=(HeldOut(split="hard", evaluations=(row,), gain=None),)))
    assert [one.title for one in found] == ["Held-out tasks by kind, test", "Held-out tasks by kind, hard"]


def test_families_have_a_table_where_one_has_several_kinds() -> None:
    two = {"x": X, "y": X}
    alone = {"iteration": 0, **X, "by_kind": two, "by_family": two}
    together = {**alone, "by_family": {"f": X}}
    assert [one.title for one in kind_tables(summary(alone))] == ["Held-out tasks by kind"]
    _, table = kind_tables(summary(together))
    assert table.title == "Held-out tasks by family" and table.rows == (("f", *CELLS), ("all", *CELLS))
