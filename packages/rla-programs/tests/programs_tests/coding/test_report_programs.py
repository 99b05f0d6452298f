"""The tables about programs and written tests."""

from __future__ import annotations

from pathlib import Path

from rla_programs.coding.report_tables import program_tables

from rla.report.collect import RunSummary
from rla.report.render import as_text
from rla.report.tables import Table

MEASURED = {
    **{"iteration": 2, "pass_at_1": 0.25, "best_of_4": 0.5, "unparsable_tests": 0.125},
    **{"ut_accuracy": 0.75, "ut_accuracy_low": 0.5, "ut_accuracy_high": 0.875, "ut_accuracy_trials": 64},
    **{"detect": None, "detect_low": None, "detect_high": None, "detect_trials": 0},
}
LED = {**MEASURED, "lead_of_8": 0.03125, "lead_of_8_low": -0.0125, "lead_of_8_high": 0.075}
AGREED = LED | {f"consensus_{key}": LED[key] for key in LED if key.startswith("lead")}


def summary(*rows: dict[str, object]) -> RunSummary:
    return RunSummary(run=Path("r"), iterations=rows, evaluations=(), seconds={}, gain=None)


def test_rates_intervals_and_denominators_are_shown() -> None:
    programs, tests, *held_out = program_tables(summary({**MEASURED, "written_tests": 64}))
    assert programs.columns == ("iteration", "pass@1", "best of 4", "tests passed")
    assert programs.rows == (("2", "25.0%", "50.0%", "-"),)
    assert tests.columns[:5] == ("iteration", "tests", "unparsable", "UT accuracy", "95% interval")
    assert tests.rows == (("2", "64", "12.5%", "75.0%", "50.0-87.5%", "-", "-"),)
    assert all(table.rows == () for table in held_out)


def test_of_several_sizes_the_smallest_and_the_largest_are_shown() -> None:
    sizes = {f"pass_at_{k}": 0.5 for k in (1, 2, 4, 8)} | {f"best_of_{n}": 0.5 for n in (2, 4, 8)}
    assert program_tables(summary(MEASURED | sizes))[0].columns[1:4] == ("pass@1", "pass@8", "best of 8")


def test_the_lead_of_the_chosen_program_is_shown_where_it_was_measured() -> None:
    table, *_ = program_tables(summary(LED, MEASURED))
    assert table.columns[-1] == "best of 8 over chance, points"
    assert [row[-1] for row in table.rows] == ["+3.1 [-1.2, +7.5]", "-"]
    both, *_ = program_tables(summary(AGREED))
    assert both.columns[-1] == "consensus over chance, points" and both.rows[0][-2] == both.rows[0][-1]


def test_each_iteration_is_one_line_of_a_narrow_terminal() -> None:
    rows = [AGREED | {"iteration": number, "pass_at_8": 0.75, "tests_passed": 0.5} for number in range(1, 13)]
    text = as_text("Run r", [table for table in program_tables(summary(*rows)) if table.rows], width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "+3.1 [-1.2, +7.5]" in text and "50.0-87.5%" in text
    lines = [line for line in text.splitlines() if line.strip() and line.strip()[0] in "0123456789+["]
    assert all(line.split()[0] in map(str, range(1, 13)) for line in lines)  # none continues the line before it


def test_other_settings_have_no_rows() -> None:
    assert all(table.rows == () for table in program_tables(summary({"iteration": 1, "success": 0.5})))


def test_the_label_of_a_row_stays_on_one_line() -> None:
    table = Table(title="T", columns=("iteration", *("a rather long title",) * 5), rows=(("evaluation 12", *"12345"),))
    assert "evaluation 12" in as_text("Run r", [table], width=60)
