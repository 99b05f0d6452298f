"""Judgements of groups whose trajectory shard is not whole yet: `.<scores>.ahead` beside the scores shard.

    part-00007.parquet    the scores of the group in `part-00007.parquet` of the trajectories

A part of the scores shard names the digest of the whole trajectory shard, which nobody knows before that is complete,
and the number of its group among those with steps. So what is judged before lies here, as parts that name the reward
model, the parameters and the SHA-256 of the one trajectory part that was read. Once the trajectories are complete, the
rows of every part that is among them move into the scores shard; whatever else lies here goes with the folder.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.store.aside import aside
from rla.store.atomic import write_atomic
from rla.store.origin import Origin
from rla.store.parts import checked_entry, group_of, origin_digest, part_name, write_part
from rla.store.reading import read_part
from rla.store.removing import remove_file
from rla.store.schema import load_schema, to_table

KIND = "scores"
OURS = re.compile(r"(part-\d{5,}\.parquet)|\.part-\d{5,}\.parquet\.tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAhead:
    """`made_from`: what all judgements are made from beside the trajectories."""

    folder: Path
    made_from: Mapping[str, Any]

    @classmethod
    def beside(cls, scores: Path, made_from: Origin, *, judge: Sequence[str]) -> JudgedAhead:
        """`made_from`: of the scores, with the trajectories or without. `judge`: the inputs that are not them."""
        said = {"config": made_from.config, "seed": made_from.seed, "judge": list(judge)}
        return cls(folder=aside(scores, "ahead"), made_from=said)

    def write(self, group: int, played: str, rows: Sequence[dict[str, Any]]) -> None:
        """The scores of a group; `played`: SHA-256 of the trajectory part that holds it."""
        table = to_table(KIND, list(rows))
        origin = self._origin(played)
        write_atomic(self._part(group), lambda place: write_part(place, table, kind=KIND, origin=origin, group=group))

    def rows(self, group: int, played: str) -> list[dict[str, Any]] | None:
        """What `write` was given; None where there is none, it is damaged, or of something else."""
        part = self._part(group)
        try:
            checked_entry(part, KIND, self._origin(played))
            return list(read_part(part).to_pylist())
        except (UserError, OSError):
            return None

    def drop(self, group: int) -> None:
        remove_file(self._part(group))

    def clear(self) -> None:
        """Remove all that was judged ahead, and the folder, unless it holds something else."""
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if OURS.fullmatch(path.name):
                    remove_file(path)
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def _part(self, group: int) -> Path:
        return self.folder / part_name(group)

    def _origin(self, played: str) -> str:
        return origin_digest(
            {**self.made_from, "kind": KIND, "version": load_schema(KIND)["version"], "played": played}
        )


def only_part(parts: Mapping[Path, Mapping[str, Any]]) -> tuple[int, str] | None:
    """Group and SHA-256 of the part that a played task lies in; None where there are more, or no digest is known."""
    if len(parts) != 1:
        return None
    ((path, entry),) = parts.items()
    return (group_of(path), str(entry["sha256"])) if "sha256" in entry else None
