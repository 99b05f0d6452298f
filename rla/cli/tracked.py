"""After the stages that measure: the curves of the run in its trackers."""

from __future__ import annotations

from rla.config import resolved
from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.tracking.trackers import refuse_missing

# What gives an iteration its figures, and what may be the last of it.
TRACKED = ("compute-rewards", "adapt-env", "train-rm", "evaluate")


def is_tracked(ctx: StageContext) -> bool:
    """Not where options name other folders than those of the run, nor where several calls share a stage."""
    return bool(ctx.config.tracking.trackers) and ctx.spec.name in TRACKED and not (ctx.paths or "slice" in ctx.options)


def check_trackers(ctx: StageContext) -> None:
    """UserError where the package of a tracker is missing, before the stage works."""
    for name in ctx.config.tracking.trackers if is_tracked(ctx) else ():
        refuse_missing(name)


def show_curves(ctx: StageContext) -> None:
    """The stage has done its work: a damaged file of another iteration, a full disk or a service out of reach is said
    and stops nothing.
    """
    if not is_tracked(ctx):
        return
    from rla.report.series import run_points
    from rla.tracking.run_curves import track_run

    try:
        track_run(ctx.run, run_points(ctx.run), resolved(ctx.config), ctx.config.tracking)
    except (UserError, OSError) as error:
        ctx.progress.note(f"no curves: {error}")
