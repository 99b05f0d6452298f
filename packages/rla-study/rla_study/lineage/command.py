"""`rla lineage`: the history of a run's tasks, as tables or as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rla.cli.guard import NEWEST, guard


def lineage(
    run: Annotated[Path | None, typer.Option(help=f"Run folder; {NEWEST}.")] = None,
    slot: Annotated[str | None, typer.Option(metavar="ID", help="This slot: the id of its root.")] = None,
    task: Annotated[str | None, typer.Option(metavar="ID", help="The slot of this task, accepted or not.")] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Also show proposals that gave no valid task.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Everything that is known, as JSON.")] = False,
) -> None:
    """Show how tasks were changed: root, edits, accuracies, verdicts and returns of each slot.

    Example: rla lineage --run runs/alfworld-tiny --slot 0f3a9c51d2b47e86
    """
    guard(lambda: typer.echo(_lineage_text(run, slot=slot, task=task, refused=refused, as_json=as_json), nl=False))


def _lineage_text(run: Path | None, *, slot: str | None, task: str | None, refused: bool, as_json: bool) -> str:
    """The output of the command. Raises UserError for a run, slot or task that does not exist."""
    from rla.errors import UserError
    from rla.pipeline.plan import existing_run
    from rla.report.render import as_text, terminal_width
    from rla_study.lineage.lineages import find, history, lineages, overview

    folder = existing_run(run)
    if slot is not None and task is not None:
        raise UserError("--slot and --task name the same thing twice; give one of them")
    found = lineages(folder)
    if slot is None and task is None:
        changed = [entry.as_json() for entry in found.values() if entry.versions]
        return (
            json.dumps(changed, indent=1) + "\n"
            if as_json
            else as_text(f"Run {folder}", [overview(found)], width=terminal_width())
        )
    entry = find(found, slot=slot, task=task)
    return (
        json.dumps(entry.as_json(), indent=1) + "\n"
        if as_json
        else as_text(
            f"Run {folder}",
            [table for table in history(entry, refused=refused) if table.rows],
            width=terminal_width(),
        )
    )
