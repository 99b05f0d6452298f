"""The page and the text of a run from its shards: figures, curves, what is worth a look, and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from rla.config import Config
from rla.envs.protocols import Labels
from rla.envs.registry import environment
from rla.metrics.custom import brought
from rla.report.adaptation import adaptation_tables
from rla.report.collect import RunSummary
from rla.report.curves import panels
from rla.report.headline import headline
from rla.report.kinds import kind_tables
from rla.report.page import (
    Section,
    curves_section,
    excerpts_section,
    report_page,
    tables_section,
)
from rla.report.parameters import parameters_tables
from rla.report.probing import probe_table
from rla.report.render import as_text
from rla.report.tables import Table, tables
from rla.showing.choosing import Choice
from rla.showing.excerpts import chosen_excerpts
from rla.showing.reading import played_in, played_iterations
from rla.store.layout import artifact
from rla.store.slices import is_complete

STEPS = 6  # shown of each kind


@runtime_checkable
class Tabulates(Protocol):
    """A member of classes that packages bring (`rla.metrics.custom`)."""

    def tables(self, summary: RunSummary) -> Sequence[Table]:
        """Tables of a report; those without rows are left out."""
        ...


@runtime_checkable
class Illustrates(Protocol):
    """Another such member."""

    def sections(self, summary: RunSummary) -> Sequence[Section]:
        """Sections of `report.html`; those without a body are left out."""
        ...


def tables_of_run(summary: RunSummary) -> list[Table]:
    """Raises UserError for a damaged `config.yaml`."""
    further = [
        *kind_tables(summary),
        probe_table(summary),
        *(table for one in brought(Tabulates) for table in one.tables(summary)),
        *adaptation_tables(summary),
        *parameters_tables(summary.run),
    ]
    return tables(summary, after_evaluation=further)


def text_of_run(summary: RunSummary, made: Sequence[Table], *, width: int) -> str:
    """All tables but listings, which the page has; the headline first and last."""
    head, made = headline(summary), [table for table in made if not table.listing]
    return "\n".join([*head, "", as_text(f"Run {summary.run}", made, width=width), *head])


def page_of_run(summary: RunSummary, made: Sequence[Table], config: Config) -> str:
    """`report.html`. A run that has just begun has few sections."""
    sections = [
        curves_section(panels(summary)),
        *steps_sections(summary, config),
        *(section for one in brought(Illustrates) for section in one.sections(summary)),
        tables_section(made),
    ]
    return report_page(f"Run {summary.run}", headline(summary), sections)


def steps_sections(summary: RunSummary, config: Config) -> list[Section]:
    """Steps of the last iteration that was judged: those the judge is most wrong about, and the most disputed."""
    judged = [i for i in played_iterations(summary.run, config) if is_complete(artifact(summary.run, "scores", i))]
    if not judged:
        return []
    played = played_in(summary.run, judged[-1])
    chosen: list[tuple[Choice, str]] = [("disputed", "Most disputed")]
    if isinstance(environment(config.env.name), Labels):
        chosen.insert(0, ("worst", "Worst judged"))
    return [
        excerpts_section(
            choice, f"{title} steps of iteration {judged[-1]}", chosen_excerpts(played, config, choice, STEPS)
        )
        for choice, title in chosen
    ]
