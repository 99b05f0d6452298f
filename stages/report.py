"""`report`: the tables of a run for people (text, HTML), its curves, and its figures as JSON for programs."""

from __future__ import annotations

from typing import Any

from rla.pipeline import StageContext
from rla.pipeline.plan import existing_run
from rla.report.collect import collect
from rla.report.curves import compared_figures, panels, report_figures, svg
from rla.report.render import WIDTH, page_of_run, terminal_width, text_of_run
from rla.report.tables import tables_of_run
from rla.store.atomic import write_json, write_text


def run(ctx: StageContext) -> dict[str, Any]:
    """Write `report.{txt,html,json}`, `curves/` and the metrics that DVC compares. Returns the text as wide as the
    terminal. Raises UserError if the run folder does not exist.
    """
    summary, out = collect(existing_run(ctx.run), ctx.config), ctx.path("out")
    made = tables_of_run(summary)
    write_text(out / "report.txt", text_of_run(summary, made, width=WIDTH))
    write_text(out / "report.html", page_of_run(summary, made))
    for panel in panels(summary):
        write_text(out / "curves" / f"{panel.name}.svg", svg(panel))
    write_json(out / "metrics.json", compared_figures(summary))
    write_json(out / "report.json", report_figures(summary))  # last: it says that the report is complete
    return {"report": str(out), "text": text_of_run(summary, made, width=terminal_width())}
