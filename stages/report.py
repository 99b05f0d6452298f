"""`report`: the tables of a run, for people (text, Markdown, HTML) and for `dvc plots` (JSON rows)."""

from __future__ import annotations

from typing import Any

from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.report.adaptation import adaptation_tables
from rla.report.build import page_of_run
from rla.report.collect import collect
from rla.report.headline import headline
from rla.report.programs import program_tables
from rla.report.render import as_markdown, as_text
from rla.report.series import evaluation_rows, history_rows, summary_json
from rla.report.tables import tables
from rla.store.atomic import write_json, write_text


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes `report.{txt,md,html,json}` and the series that are plotted; returns the text.

    Raises UserError where the run folder does not exist.
    """
    if not ctx.run.is_dir():
        raise UserError(f"{ctx.run}: no such run; give --run one of the folders below runs")
    summary = collect(ctx.run)
    made = tables(summary, after_evaluation=[*program_tables(summary), *adaptation_tables(summary)])
    title, out = f"Run {ctx.run}", ctx.path("out")
    head = headline(summary)
    text = "\n".join([*head, "", as_text(title, made), *head])
    for name, content in (
        ("report.txt", text),
        ("report.md", as_markdown(title, made, head=head)),
        ("report.html", page_of_run(summary, made, ctx.config)),
    ):
        write_text(out / name, content)
    rows, evaluated = history_rows(summary), evaluation_rows(summary)
    write_json(out / "history.json", rows)
    write_json(out / "evaluations.json", evaluated)
    held_out = {
        row["iteration"]: {
            key.replace("success", "held_out", 1): rate for key, rate in row.items() if key != "iteration"
        }
        for row in evaluated
    }
    for row in rows:
        found = {**held_out.get(row["iteration"], {}), **row}
        known = {key: value for key, value in found.items() if value is not None}
        write_json(out / "metrics" / f"{row['iteration']:03d}.json", known)
    write_json(out / "report.json", summary_json(summary))
    return {"text": text, "report": str(out)}
