"""The tables about programs and written tests."""

from __future__ import annotations

from pathlib import Path

from rla.report.collect import RunSummary
from rla.report.programs import program_tables

MEASURED = {
    **{"iteration": 2, "pass_at_1": 0.25, "best_of_4": 0.5, "unparsable_tests": 0.125},
    **{"ut_accuracy": 0.75, "ut_accuracy_low": 0.5, "ut_accuracy_high": 0.875, "ut_accuracy_trials": 64},
    **{"detect": None, "detect_low": None, "detect_high": None, "detect_trials": 0},
}


def summary(*rows: dict[str, object]) -> RunSummary:
    return RunSummary(run=Path("r"), iterations=rows, evaluations=(), seconds={}, gain=None)


def test_rates_intervals_and_denominators_are_shown() -> None:
    trained, held_out = program_tables(summary(MEASURED))
    assert trained.columns[:3] == ("iteration", "pass@1", "best of 4") and held_out.rows == ()
    assert trained.rows == (("2", "25.0%", "50.0%", "75.0%", "50.0-87.5%", "64", "-", "-", "0", "12.5%"),)


def test_the_lead_of_the_chosen_program_is_shown_where_it_was_measured() -> None:
    led = {**MEASURED, "lead_of_8": 0.03125, "lead_of_8_low": -0.0125, "lead_of_8_high": 0.075}
    table, _ = program_tables(summary(led, MEASURED))
    assert table.columns[3:5] == ("best of 8 over chance, points", "UT accuracy")
    assert [row[3] for row in table.rows] == ["+3.1 [-1.2, +7.5]", "-"]
    agreed = {f"consensus_{key}": led[key] for key in led if key.startswith("lead")}
    both, _ = program_tables(summary({**led, **agreed}))
    assert both.columns[4] == "consensus of 8 over chance, points" and both.rows[0][3] == both.rows[0][4]


def test_other_settings_have_no_rows() -> None:
    assert all(table.rows == () for table in program_tables(summary({"iteration": 1, "success": 0.5})))
