"""Series over iterations that are plotted and tracked, and a run's figures as JSON."""

from __future__ import annotations

from typing import Any

from rla.metrics.intervals import Interval
from rla.report.adaptation import edit_counts
from rla.report.collect import RunSummary

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


def history_rows(summary: RunSummary) -> list[dict[str, Any]]:
    """One row per iteration with all series of `HISTORY`, null where it has none.

    DVC plots a list only if its rows have equal keys: an iteration without a win has no mu, and no series at all would
    be drawn.
    """
    return [{"iteration": row["iteration"], **{key: row.get(key) for key in HISTORY}} for row in summary.iterations]


def evaluation_rows(summary: RunSummary) -> list[dict[str, Any]]:
    """One row per evaluation: `success` on the main held-out split, `success_<split>` on every other, null without."""
    further = {
        found.split: {row["iteration"]: row["success"] for row in found.evaluations} for found in summary.further
    }
    return [
        {"iteration": row["iteration"], "success": row["success"]}
        | {f"success_{split}": rates.get(row["iteration"]) for split, rates in further.items()}
        for row in summary.evaluations
    ]


def gain_json(gain: Interval | None) -> dict[str, float] | None:
    return {"estimate": gain.estimate, "low": gain.low, "high": gain.high} if gain else None


def summary_json(summary: RunSummary) -> dict[str, Any]:
    further = {
        found.split: {"evaluations": list(found.evaluations), "gain": gain_json(found.gain)}
        for found in summary.further
    }
    return {
        "iterations": list(summary.iterations),
        "evaluations": list(summary.evaluations),
        "edits": edit_counts(summary),
        "gain": gain_json(summary.gain),
        **({"further_splits": further} if further else {}),
        "seconds": [
            {"iteration": iteration, "stage": stage, "seconds": value}
            for (iteration, stage), value in sorted(summary.seconds.items())
        ],
    }
