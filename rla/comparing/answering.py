"""avg, pass and maj of k answers to a question, run beside run, as each evaluation has written them."""

from __future__ import annotations

from collections.abc import Sequence

from rla.comparing.runs import ComparedArm
from rla.comparing.success import SplitResult
from rla.comparing.tables import after_text
from rla.report.answering import interval_row, of_all_answers
from rla.report.tables import Table, bounds, joined_title, percent


def answers_table(arms: Sequence[ComparedArm], result: SplitResult, *, titled: bool) -> Table:
    """One line per run, at the last of the iterations that are compared; each on all questions that it answered."""
    title = joined_title("Held-out answers", result.split if titled else "")
    at = result.points[-1] if result.points else None
    found = {}
    for run in (run for arm in arms for run in arm.runs):
        for one in run.summary.held_out:
            row = next((row for row in one.evaluations if row["iteration"] == at), {})
            if one.split in ("", result.split) and row.get("at_k", {}).get("n", 0) > 1:
                found[run.name] = of_all_answers(row)
    names = list(dict.fromkeys(name for figures in found.values() for name in figures))
    columns = ["run"]
    for name in names:
        columns += [name, "95% interval"]
    rows = []
    for run_name, figures in found.items():
        cells = [run_name]
        for name in names:
            figure = figures.get(name, {})
            cells += [percent(figure.get("estimate")), bounds(interval_row(figure), "figure")]
        rows.append(tuple(cells))
    note = f"{after_text(result.points[-1:])}, each run on all of its questions" if rows else ""
    return Table(title=title, columns=tuple(columns), rows=tuple(rows), note=note)
