"""The tables of a report about programs and the tests written for them; other environments have no rows here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rla.report.collect import RunSummary, titled_splits
from rla.report.tables import ABSENT, Table, bounds, joined_title, number, percent

SHARES = {
    **{"pass_at_1": "pass@1", "pass_at_2": "pass@2", "pass_at_4": "pass@4", "pass_at_8": "pass@8"},
    **{"best_of_2": "best of 2", "best_of_4": "best of 4", "best_of_8": "best of 8", "tests_passed": "tests passed"},
}
LEADS = {
    "lead_of_8": "best of 8 over chance, points",
    "consensus_lead_of_8": "consensus of 8 over chance, points",
}
WRITTEN = {"ut_accuracy": "UT accuracy", "detect": "Detect"}


def program_tables(summary: RunSummary) -> list[Table]:
    """Programs and written tests, on training tasks and on held-out ones."""
    held_out = [
        program_table(joined_title("Programs and tests, held out", found.split), found.evaluations)
        for found in titled_splits(summary)
    ]
    return [program_table("Programs and tests", summary.iterations), *held_out]


def program_table(title: str, rows: tuple[Mapping[str, Any], ...]) -> Table:
    """One line per iteration that was measured by programs."""
    found = [row for row in rows if "pass_at_1" in row]
    shown = {key: name for key, name in SHARES.items() if any(row.get(key) is not None for row in found)}
    leads = {key: name for key, name in LEADS.items() if any(row.get(key) is not None for row in found)}
    columns = ["iteration", *shown.values(), *leads.values()]
    for name in WRITTEN.values():
        columns += [name, "95% interval", "of tests"]
    note = (
        "best of n: chosen by the number of written tests that it passes; consensus: by how many programs pass the "
        "same tests as it does; over chance: less the share of the same task's programs that are right; UT "
        "accuracy: written tests that agree with the ground truth; Detect: that besides tell all right programs from "
        "all wrong ones"
    )
    return Table(
        title=title, columns=(*columns, "unparsable"), rows=tuple(cells(row, shown, leads) for row in found), note=note
    )


def cells(row: Mapping[str, Any], shown: Mapping[str, str], leads: Mapping[str, str]) -> tuple[str, ...]:
    found = [str(row["iteration"]), *(percent(row.get(key)) for key in shown), *(lead_text(row, key) for key in leads)]
    for key in WRITTEN:
        found += [percent(row.get(key)), bounds(row, key), number(row.get(f"{key}_trials"), 0)]
    return (*found, percent(row.get("unparsable_tests")))


def lead_text(row: Mapping[str, Any], lead: str) -> str:
    """`+3.1 [-1.2, +7.5]`, in points."""
    if row.get(lead) is None:
        return ABSENT
    estimate, low, high = (100 * float(row[key]) for key in (lead, f"{lead}_low", f"{lead}_high"))
    return f"{estimate:+.1f} [{low:+.1f}, {high:+.1f}]"
