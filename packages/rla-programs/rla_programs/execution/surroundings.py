"""The table of a report about the machines and pages that episodes were played on, and how many were lost."""

from __future__ import annotations

from rla.report.collect import RunSummary
from rla.report.tables import Table, number

PLAYING = {"rollout": "", "evaluate": "evaluation "}  # stages that play episodes, with the prefixes of their lines
COLUMNS = {
    "machines": "machines",
    "machine_start_s": "seconds of their starts",
    "pages": "pages",
    "pages_lost": "pages lost",
    "pages_given_up": "episodes ended for that",
}


def surroundings_table(summary: RunSummary) -> Table:
    """One line for each stage that counted machines or pages (`rla_programs.execution.figures`)."""
    lines = [
        (f"{name}{iteration}", figures)
        for stage, name in PLAYING.items()
        for (iteration, of), figures in summary.figures.items()
        if of == stage and figures.keys() & COLUMNS.keys()
    ]
    known = [key for key in COLUMNS if any(key in figures for _, figures in lines)]
    rows = tuple((name, *(number(figures.get(key), 0) for key in known)) for name, figures in lines)
    note = (
        "pages lost: they hung or died; such an episode is played again on another page, and ends if that is lost, too"
    )
    return Table(
        title="Machines and pages",
        columns=("iteration", *(COLUMNS[key] for key in known)),
        rows=rows,
        note=note * ("pages" in known),
    )
