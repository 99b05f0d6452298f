"""The additions of this package to reports, trackers and `rla run`. Every stage makes the object of the entry-point
group `rla.tables`, so its members import their modules when they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.config import Config

if TYPE_CHECKING:
    from rla.pipeline.plan import Plan
    from rla.pipeline.run import StageDone
    from rla.report.collect import RunSummary
    from rla.report.render import Section


class StudyTables:
    """Registered in the group `rla.tables`. `rla.metrics.custom` describes `accompany` and `sections`,
    `rla_study.tracking` describes `tracked`.
    """

    def accompany(self, plan: Plan, run: Path, config: Config, say: Callable[[str], None]) -> StageDone:
        from rla_study.milestones import Milestones

        milestones = Milestones(plan=plan, run=run, config=config, say=say)
        milestones.begin()
        return milestones.passed

    def sections(self, summary: RunSummary) -> list[Section]:
        """Judged steps and accepted tasks."""
        from rla_study.lineage.changes import accepted_tasks
        from rla_study.showing.drawing import judged_steps

        return [*judged_steps(summary), *accepted_tasks(summary.run)]

    def tracked(self, run: Path, config: Config, iteration: int, tracker: str) -> dict[str, Any]:
        from rla_study.episode_tables import episode_table

        return episode_table(run, config, iteration, tracker)
