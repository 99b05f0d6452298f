"""The options of a stage command that are its own: how its work is divided, where its data come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Option = tuple[str, Any, Any]  # name, annotation, default

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
    "rollout": DIVIDED,
    "score-steps": [
        *DIVIDED,
        (
            "own_follow",
            Annotated[bool, typer.Option("--follow", help="Judge while a rollout plays, each group as it is played.")],
            False,
        ),
        (
            "own_follow_timeout",
            Annotated[
                float | None,
                typer.Option("--follow-timeout", min=0, help="Seconds that --follow waits without news; 3600."),
            ],
            None,
        ),
    ],
    "evaluate": [
        *DIVIDED,
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
    "collect": [
        *DIVIDED,
        (
            "own_trajectories",
            Annotated[
                list[Path] | None,
                typer.Option("--trajectories", help="Nobody plays: choose from these shards. May be given again."),
            ],
            None,
        ),
        (
            "own_scores",
            Annotated[
                list[Path] | None,
                typer.Option("--scores", help="Scores of their steps, by which they are ranked. May be given again."),
            ],
            None,
        ),
        (
            "own_conversations",
            Annotated[
                list[Path] | None,
                typer.Option(
                    "--conversations",
                    help="Nobody plays: choose from a shard, a Parquet or JSONL file, or hub:owner/name. May be given "
                    "again.",
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
                    "--from", help="Data: a folder that holds json_2.1.1; coding: a file, a folder or hub:owner/name."
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
