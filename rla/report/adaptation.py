"""The tables of a report about adaptation: what was proposed and accepted over iterations, by kind of edit, and how an
independent policy fares on it.
"""

from __future__ import annotations

from rla.adaptation.kinds import Tally, added
from rla.report.collect import RunSummary
from rla.report.tables import Table, number, percent

PROPOSED = ("tasks_chosen", "tasks_proposed", "tasks_valid")
JUDGED = ("pending", "accepted_harder", "accepted_easier", "returned", "accepted_total", "adapted_slots")
COUNTS = ("proposed", "tried", "valid", "measured", "accepted")
PLAYED = ("expert", "parent_expert", "root_expert")


def adaptation_tables(summary: RunSummary) -> list[Table]:
    """All of them; one without rows is not shown."""
    return [progress(summary), edits(summary), expert(summary)]


def progress(summary: RunSummary) -> Table:
    """One line per iteration in which something was asked for, judged or returned."""
    rows = tuple(
        (
            str(row["iteration"]),
            *(number(row.get(key), 0) for key in (*JUDGED, *PROPOSED)),
            number(row.get("pool_depth_mean"), 3),
        )
        for row in summary.iterations
        if row.get("tasks_chosen") or row.get("pending") or row.get("returned")
    )
    columns: tuple[str, ...] = (
        "iteration",
        "judged",
        "harder",
        "easier",
        "returned",
        "accepted so far",
        "slots changed",
    )
    columns += ("asked", "proposed", "valid", "depth")
    note = (
        "judged: those of the iteration before; harder, easier: accepted; depth: edits from the root, mean of the pool"
    )
    return Table(title="Adaptation", columns=columns, rows=rows, note=note)


def edits(summary: RunSummary) -> Table:
    """One line per direction and kind of edit, over all iterations."""
    rows = tuple(
        (direction, kind, *(str(counts.get(name, 0)) for name in COUNTS))
        for direction, kinds in edit_counts(summary).items()
        for kind, counts in kinds.items()
    )
    note = (
        "over all iterations; of the proposals for a task those after the first valid one are not tried; measured: "
        "played as pending tasks"
    )
    return Table(title="Edits", columns=("direction", "kind", *COUNTS), rows=rows, note=note)


def expert(summary: RunSummary) -> Table:
    """One line per iteration that accepted tasks: the expert on them, on their parents and on their roots."""
    rows = tuple(
        (
            str(row["iteration"]),
            number(row["accepted"], 0),
            *(percent(row[f"{who}_success"]) for who in PLAYED),
            *(number(row[f"{who}_steps"], 1) for who in PLAYED),
        )
        for row in summary.iterations
        if row.get("expert_success") is not None
    )
    columns: tuple[str, ...] = ("iteration", "accepted", "success", "of parents", "of roots")
    columns += ("steps", "of parents", "of roots")
    note = "a policy that sees observations only and does not learn, on the tasks that were accepted"
    return Table(title="Expert on accepted tasks", columns=columns, rows=rows, note=note)


def edit_counts(summary: RunSummary) -> Tally:
    """direction -> kind of edit -> counts, over all iterations."""
    rows = summary.iterations
    return added([row[key] for row in rows for key in ("tasks_by_edit", "by_edit") if row.get(key)])
