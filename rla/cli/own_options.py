"""The options of a stage command that are its own: how its work is divided, where its data come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rla.pipeline.context import StageSpec

Option = tuple[str, Any, Any]  # name, annotation, default
Overrides = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override one parameter.")]

LOOKING = ("report", "judge-accuracy")  # stages that take the newest run unless one is named
NEWEST = "by default the newest below runs"  # of commands that look at a run

DIVIDED: list[Option] = [
    (
        "own_slice",
        Annotated[str | None, typer.Option("--slice", metavar="I/N", help="Only share I of N of the groups.")],
        None,
    ),
    (
        "own_workers",
        Annotated[int | None, typer.Option("--workers", min=1, help="N processes here, one slice each.")],
        None,
    ),
]

OWN_OPTIONS: dict[str, list[Option]] = {
    "evaluate": [
        (
            "own_from",
            Annotated[
                Path | None,
                typer.Option(
                    "--from", metavar="FILE", help="Judge the answers of this .jsonl or .parquet; play nothing."
                ),
            ],
            None,
        ),
    ],
    "make-tasks": [
        (
            "own_from",
            Annotated[
                Path | None,
                typer.Option(
                    "--from", help="Data: a folder that holds json_2.1.1, or what else the environment reads."
                ),
            ],
            None,
        ),
        ("own_split", Annotated[str | None, typer.Option("--split", help="Only this split.")], None),
        (
            "own_export",
            Annotated[Path | None, typer.Option("--export", help="Also write games that the stock engine loads.")],
            None,
        ),
        (
            "own_limit",
            Annotated[int | None, typer.Option("--limit", min=1, help="At most this many games.")],
            None,
        ),
        (
            "own_curate",
            Annotated[
                Path | None,
                typer.Option(
                    "--curate", metavar="FOLDER", help="Keep what the policy of these trajectories sometimes solves."
                ),
            ],
            None,
        ),
    ],
}


def own_options(spec: StageSpec) -> list[Option]:
    """Of the core's stages by name, of those of packages as they say themselves."""
    brought = [(f"own_{name}", annotation, default) for name, annotation, default in spec.options]
    return [*(DIVIDED if spec.divided else ()), *OWN_OPTIONS.get(spec.name, ()), *brought]
