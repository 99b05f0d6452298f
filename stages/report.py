"""`report`: the tables of a run, for people (text, Markdown, HTML) and for `dvc plots` (JSON rows)."""

from __future__ import annotations

from typing import Any

from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.report.adaptation import adaptation_tables, edit_counts
from rla.report.collect import RunSummary, collect
from rla.report.programs import program_tables
from rla.report.render import as_html, as_markdown, as_text
from rla.report.tables import tables
from rla.store.atomic import write_json, write_text

HISTORY: tuple[str, ...] = (
    "success",
    "mean_steps",
    "rm_outcome_accuracy",
    "p_plus",
    "p_minus",
    "mu",
    "theorem1_bound",
    "self_agreement",
    "unparsable_votes",
    "labelled_steps",
    "unlabelled_episodes",
    "good_steps",
    "closer_steps",
    "label_mu",
    "distance_covered",
    "distance_covered_lost",
    "importance_ratio_median",
    "importance_ratio_p90",
    "importance_ratio_max",
    "one_sided_tasks",
    "accepted",
    "rejected",
    "reward_mean",
)
AGAINST_FACT = ("votes", "accuracy", "low", "high", "good", "bad", "balanced", "majority", "won", "lost")
HISTORY += tuple(f"rm_{truth}_{figure}" for truth in ("process", "distance") for figure in AGAINST_FACT)
HISTORY += ("accepted_total", "accepted_harder", "accepted_easier", "returned", "tasks_proposed", "tasks_valid")
HISTORY += ("expert_success", "root_expert_success")
HISTORY += ("ut_accuracy", "detect", "tests_passed")  # of written tests and programs
HISTORY += ("policy_kl", "policy_approx_kl", "policy_entropy", "rm_kl", "rm_approx_kl", "rm_entropy")


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes `report.{txt,md,html,json}` and the series that are plotted; returns the text.

    Raises UserError where the run folder does not exist.
    """
    if not ctx.run.is_dir():
        raise UserError(f"{ctx.run}: no such run; give --run one of the folders below runs")
    summary = collect(ctx.run)
    made = tables(summary, after_evaluation=[*program_tables(summary), *adaptation_tables(summary)])
    title, out = f"Run {ctx.run}", ctx.path("out")
    text = as_text(title, made)
    for name, content in (
        ("report.txt", text),
        ("report.md", as_markdown(title, made)),
        ("report.html", as_html(title, made)),
    ):
        write_text(out / name, content)
    held_out = {row["iteration"]: row["success"] for row in summary.evaluations}
    rows = history(summary)
    write_json(out / "history.json", rows)
    write_json(out / "evaluations.json", [{"iteration": i, "success": rate} for i, rate in held_out.items()])
    for row in rows:
        found = {"held_out": held_out.get(row["iteration"]), **row}
        known = {key: value for key, value in found.items() if value is not None}
        write_json(out / "metrics" / f"{row['iteration']:03d}.json", known)
    write_json(out / "report.json", as_json(summary))
    return {"text": text, "report": str(out)}


def history(summary: RunSummary) -> list[dict[str, Any]]:
    """One row per iteration with all series of `HISTORY`, null where it has none.

    DVC plots a list only if its rows have equal keys: an iteration without a win has no mu, and no series at all would
    be drawn.
    """
    return [{"iteration": row["iteration"], **{key: row.get(key) for key in HISTORY}} for row in summary.iterations]


def as_json(summary: RunSummary) -> dict[str, Any]:
    gain = summary.gain
    return {
        "iterations": list(summary.iterations),
        "evaluations": list(summary.evaluations),
        "edits": edit_counts(summary),
        "gain": {"estimate": gain.estimate, "low": gain.low, "high": gain.high} if gain else None,
        "seconds": [
            {"iteration": iteration, "stage": stage, "seconds": value}
            for (iteration, stage), value in sorted(summary.seconds.items())
        ],
    }
