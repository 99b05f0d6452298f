"""The tables of a report about programs and the tests written for them; empty for other environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rla.metrics.custom import Figure
from rla.report.collect import RunSummary, titled_splits
from rla.report.tables import ABSENT, Table, bounds, joined_title, number, percent

PASSED = tuple(f"pass_at_{2**power}" for power in range(4))
CHOSEN = tuple(f"best_of_{2**power}" for power in range(1, 4))
LEADS = {"lead_of_8": "best of 8 over chance, points", "consensus_lead_of_8": "consensus over chance, points"}
WRITTEN = {"ut_accuracy": "UT accuracy", "detect": "Detect"}
PROGRAMS_NOTE = (
    "best of n: chosen by the number of written tests that it passes; consensus: by how many programs pass the same "
    "tests as it does; over chance: less the share of the same task's programs that are right"
)
TESTS_NOTE = (
    "UT accuracy: written tests that agree with the ground truth; Detect: that besides tell all right programs from "
    "all wrong ones, of tasks that have both"
)


class ProgramTables:
    """Programs and written tests, for `rla.tables`."""

    figures = (Figure(key="ut_accuracy", share=True), Figure(key="detect", share=True), Figure(key="tests_passed"))

    def tables(self, summary: RunSummary) -> list[Table]:
        return program_tables(summary)


def program_tables(summary: RunSummary) -> list[Table]:
    """Programs and written tests, on training tasks and on held-out ones."""
    made = [*_coding_tables("", summary.iterations)]
    for found in titled_splits(summary):
        made += _coding_tables(joined_title(", held out", found.split), found.evaluations)
    return made


def _coding_tables(place: str, rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """One line per iteration that has metrics of programs. For pass@k and best of n only the smallest and the largest k
    and n are shown, so that a line fits a terminal; the report as JSON has all.
    """
    found = [row for row in rows if "pass_at_1" in row]
    known = [[key for key in keys if any(row.get(key) is not None for row in found)] for keys in (PASSED, CHOSEN)]
    shares = {key: key.replace("_at_", "@") for key in dict.fromkeys([*known[0][:1], *known[0][-1:]])}
    shares |= {key: key.replace("_", " ") for key in known[1][-1:]} | {"tests_passed": "tests passed"}
    leads = {key: name for key, name in LEADS.items() if any(row.get(key) is not None for row in found)}
    programs = Table(
        title=f"Programs{place}",
        columns=("iteration", *shares.values(), *leads.values()),
        rows=tuple(
            (
                str(row["iteration"]),
                *(percent(row.get(key)) for key in shares),
                *(_lead_text(row, key) for key in leads),
            )
            for row in found
        ),
        note=PROGRAMS_NOTE,
    )
    columns = (
        "iteration",
        "tests",
        "unparsable",
        *(one for name in WRITTEN.values() for one in (name, "95% interval")),
    )
    tests = Table(title=f"Written tests{place}", columns=columns, rows=tuple(map(_test_cells, found)), note=TESTS_NOTE)
    return [programs, tests]


def _test_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    measured = [cell for key in WRITTEN for cell in (percent(row.get(key)), bounds(row, key))]
    return (
        str(row["iteration"]),
        number(row.get("written_tests"), 0),
        percent(row.get("unparsable_tests")),
        *measured,
    )


def _lead_text(row: Mapping[str, Any], lead: str) -> str:
    """`+3.1 [-1.2, +7.5]`, in points."""
    if row.get(lead) is None:
        return ABSENT
    estimate, low, high = (100 * float(row[key]) for key in (lead, f"{lead}_low", f"{lead}_high"))
    return f"{estimate:+.1f} [{low:+.1f}, {high:+.1f}]"
