"""`rla ablation report`: the tables as Markdown, written next to the arms' folders, and the learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rla.errors import UserError
from rla.report.tables import Table
from rla.store.atomic import write_text
from rla_study.ablation.accepted import accepted_table
from rla_study.ablation.design import Design, chosen_arms
from rla_study.ablation.measures import measure_tables
from rla_study.ablation.outcomes import outcomes
from rla_study.ablation.records import with_records, write_ablation_record
from rla_study.ablation.settled_measures import settled_measure_tables
from rla_study.ablation.settling import settling_tables
from rla_study.ablation.table import ablation_tables

TABLE = "ablation.md"


def write_report(
    design: Design,
    root: Path,
    *,
    only: Sequence[str] = (),
    at: Sequence[int] = (),
    curves: Path | None = None,
    records: Sequence[Path] = (),
    record: Path | None = None,
) -> str:
    """The report, also written to `<root>/ablation.md`. `only`: report these arms. `at`: read the arms at these
    iterations. `records`: files with runs of other machines to include. `record`: a file to write all these runs to.

    Raises UserError for an unknown arm, if no arm has been evaluated, or none at one of these iterations, and for the
    errors of `with_records`.
    """
    shown = chosen_arms(design, only)
    every = with_records(design, root, outcomes(design, root), records)
    arms = [found for found in every if found.shared_points and (found.arm in shown or not only)]
    if not arms:
        raise UserError(f"{root}: no arm has been evaluated; run `rla ablation run --root {root}` first")
    known = sorted({point for found in arms for point in found.shared_points if point > 0})
    if absent := sorted(set(at) - set(known)):
        raise UserError(
            f"{root}: no arm has been evaluated at iteration {absent[0]}; there is {', '.join(map(str, known))}"
        )
    tables = ablation_tables(arms, baseline=design.baseline, at=at)
    tables += settling_tables(arms, design, at=at)
    tables += [table for table in (accepted_table(arms, until=max(at, default=None)),) if table.rows]
    tables += measure_tables(arms, design.measures, baseline=design.baseline, at=at)
    tables += settled_measure_tables(arms, design, at=at)
    text = as_markdown(f"Ablation {root}", tables)
    root.mkdir(parents=True, exist_ok=True)
    write_text(root / TABLE, text)
    if record is not None:
        write_ablation_record(record, design, root, arms)
    if curves is not None:
        from rla_study.ablation.curves import draw_curves

        draw_curves(arms, curves, measures=design.measures)
    return text


def as_markdown(title: str, tables: Sequence[Table]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"

    lines = [f"# {title}"]
    for table in tables:
        lines += ["", f"## {table.title}", "", line(table.columns), line(["---"] * len(table.columns))]
        lines += [line(row) for row in table.rows]
        lines += ["", table.note] if table.note else []
    return "\n".join(lines) + "\n"
