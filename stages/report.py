"""`report`: the tables of a run for people (text, Markdown, HTML), its curves, and its figures as JSON for programs."""

from __future__ import annotations

from typing import Any

from rla.pipeline import StageContext
from rla.pipeline.plan import existing_run
from rla.report.collect import collect
from rla.report.curves import panels, report_figures, write_curves
from rla.report.render import WIDTH, as_markdown, page_of_run, terminal_width, text_of_run
from rla.report.tables import headline, tables_of_run
from rla.store.atomic import write_json, write_text


def run(ctx: StageContext) -> dict[str, Any]:
    """Write `report.{txt,md,html,json}`, `curves/`, the series over iterations and the metrics that DVC compares.
    Returns the text as wide as the terminal. Raises UserError if the run folder does not exist.
    """
    summary, out = collect(existing_run(ctx.run)), ctx.path("out")
    made = tables_of_run(summary)
    write_text(out / "report.txt", text_of_run(summary, made, width=WIDTH))
    write_text(out / "report.md", as_markdown(f"Run {ctx.run}", made, head=headline(summary)))
    write_text(out / "report.html", page_of_run(summary, made, ctx.config))
    write_curves(out / "curves", panels(summary))
    for name, content in report_figures(summary).items():  # report.json comes last: it says that the report is complete
        write_json(out / name, content)
    return {"report": str(out), "text": text_of_run(summary, made, width=terminal_width())}
