"""Shards on disk, and `read`, which opens one of a run for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def read(name: str, run: Path | str, iteration: int = 0, *, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """A shard of a run as a polars frame, parts in order, verified as in a stage.

    `name`: `trajectories`, `scores`, `policy_rewards`, `eval_trajectories` and so on, the keys of `SHARD_KINDS` in
    `rla.store.layout`. `run`: the folder of the run, or `<run>/splits/<split>` for the evaluations of a further split.
    `iteration`: 0 is before the loop; `train_tasks` and `test_tasks` have none. `columns`: only these, in this order;
    `schemas/<kind>.schema.json` and the reference define them. An episode's `steps` and a step's `judgements` are lists
    of structs; `token_ids` and `logprobs` are lists of one number a token.

    Raises UserError for an unknown name or column, if the shard is missing or not finished, and if its parts are not
    the files that its manifest names.
    """
    import polars

    from rla.errors import UserError
    from rla.store.layout import SHARD_KINDS, artifact
    from rla.store.reading import read_table
    from rla.store.schema import arrow_schema

    if name not in SHARD_KINDS:
        raise UserError(f"{name!r}: no shard of a run; choose one of {', '.join(SHARD_KINDS)}")
    kind = SHARD_KINDS[name]
    known = arrow_schema(kind).names
    if unknown := [column for column in columns or () if column not in known]:
        raise UserError(f"{name} have no column {', '.join(unknown)}; choose of {', '.join(known)}")
    return polars.DataFrame(polars.from_arrow(read_table(artifact(Path(run), name, iteration), kind, columns)))
