"""`rla merge`: a checkpoint as one model folder, to publish it or to serve it without its base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from rla.cli.guard import guard


def merge(
    checkpoint: Path,
    folder: Path,
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Data type of the weights.")] = "bfloat16",
) -> None:
    """Write a checkpoint as one model folder that other programs can read, with an adapter merged into its base.

    Example: rla merge runs/first/12/policy merged
    """

    def call() -> None:
        from rla.models.checkpoint import model_folder, verify_model
        from rla.models.load import write_merged
        from rla_study.whole_folder import whole_folder

        model = model_folder(checkpoint)
        verify_model(model)
        with whole_folder(folder) as partial:
            write_merged(model, partial, dtype=dtype)

    guard(call)
