"""The command `collect`. `rla --help` imports this module, so it must not import heavy modules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rla.pipeline import StageSpec

CONVERSATIONS = "0/conversations"  # the artifact: a path below the run

COLLECT = StageSpec(
    name="collect",
    module="rla_programs.collecting.stage",
    summary="Collect conversations for the warm start: a teacher plays, or the best earlier episodes are kept.",
    example="rla collect --set collect.episodes=4",
    reads=(("pool", "train_tasks"),),
    writes=(("out", CONVERSATIONS),),
    sections=("env", "policy.reply", "policy.repeat_task", "policy.decoding", "collect"),
    beside=True,
    divided=True,
    options=(
        (
            "trajectories",
            Annotated[
                list[Path] | None,
                typer.Option("--trajectories", help="Nobody plays: choose from these shards. May be given again."),
            ],
            None,
        ),
        (
            "scores",
            Annotated[
                list[Path] | None,
                typer.Option("--scores", help="Scores of their steps, by which they are ranked. May be given again."),
            ],
            None,
        ),
        (
            "conversations",
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
    ),
)
