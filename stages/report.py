"""`report`: the tables of a run for people (text, Markdown, HTML), its curves, and its figures as JSON for programs."""

from __future__ import annotations

from typing import Any

from rla.pipeline.context import StageContext
from rla.pipeline.run import existing_run
from rla.report.build import headline, page_of_run, tables_of_run, text_of_run
from rla.report.collect import collect
from rla.report.render import WIDTH, as_markdown, terminal_width
from rla.report.series import evaluation_rows, history_rows, panels, run_metrics, summary_json, write_curves
from rla.store.atomic import write_json, write_text


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes `report.{txt,md,html,json}`, `curves/`, the series over iterations and what DVC compares. Returns the
    text, whose tables are as wide as the terminal.

    Raises UserError where the run folder does not exist.
    """
    summary = collect(existing_run(ctx.run))
    made = tables_of_run(summary)
    title, out = f"Run {ctx.run}", ctx.path("out")
    head = headline(summary)

    for name, content in (
        ("report.txt", text_of_run(summary, made, width=WIDTH)),
        ("report.md", as_markdown(title, made, head=head)),
        ("report.html", page_of_run(summary, made, ctx.config)),
    ):
        write_text(out / name, content)
    write_curves(out / "curves", panels(summary))
    write_json(out / "history.json", history_rows(summary))
    write_json(out / "evaluations.json", evaluation_rows(summary))
    write_json(out / "metrics.json", run_metrics(summary))
    write_json(out / "report.json", summary_json(summary))
    return {"report": str(out), "text": text_of_run(summary, made, width=terminal_width())}
