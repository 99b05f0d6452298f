"""The sequences of a stage, on disk: written once from a stream, then read one by one in any order.

An Arrow IPC file, a row for each sequence, mapped into memory: what a stage holds at any time is one forward pass,
not its trajectories. Only numbers per sequence are kept (`lengths`, counts). The file belongs to one run of the
stage: it is written anew when the stage starts and removed when it ends.

A sequence whose branches exceed the budget of a forward pass is stored as several (`rla.training.cutting`). They stay
together in one optimizer step, so that the budget changes no result.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from rla.store.records import ImageSpan
from rla.training.cutting import split_branches, without_long_replies
from rla.training.data import TrainingSequence

ROWS = 16  # sequences of one record batch
TYPES: dict[str, Any] = {
    "token_ids": pa.list_(pa.int32()),
    "positions": pa.list_(pa.int32()),
    "logp": pa.list_(pa.float64()),
    "allowed": pa.list_(pa.list_(pa.int32())),
    "advantages": pa.list_(pa.float64()),
    "branches": pa.list_(pa.list_(pa.int32(), 2)),
    "replies": pa.list_(pa.int32()),
    "owner": pa.string(),
    "task": pa.string(),
    "images": pa.list_(pa.struct([("digest", pa.string()), ("start", pa.int32()), ("length", pa.int32())])),
}
SCHEMA = pa.schema([(entry.name, TYPES[entry.name]) for entry in fields(TrainingSequence)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Of a stored file: `digest` (SHA-256 of the sequences), and what was longer than the limit.

    Of `too_long` sequences nothing is stored, of `shortened` ones some replies: `replies_too_long` of all `replies` are
    left out. `pieces`: by sequence, how many it was cut into; `tasks`: by sequence, its task. All other lists have an
    entry for each piece.
    """

    digest: str
    too_long: int
    shortened: int
    replies: int
    replies_too_long: int
    pieces: list[int]
    lengths: list[int]
    loss_tokens: list[int]
    pairs: list[float]
    highest: int  # token id, of those that were sampled, read or offered
    signal: bool  # whether any advantage is not zero
    pictures: tuple[str, ...] = ()  # digests of those that the sequences show
    tasks: tuple[str, ...] = ()

    def groups(self) -> list[range]:
        """By sequence, the indices of its pieces."""
        ends = list(itertools.accumulate(self.pieces))
        return [range(end - count, end) for end, count in zip(ends, self.pieces, strict=True)]

    def task_groups(self) -> list[list[int]]:
        """By task, the indices of the pieces of all its sequences."""
        found: dict[str, list[int]] = {}
        for task, pieces in zip(self.tasks, self.groups(), strict=True):
            found.setdefault(task, []).extend(pieces)
        return list(found.values())


def write_sequences(file: Path, sequences: Iterable[TrainingSequence], *, max_tokens: int, budget: int) -> Facts:
    """Store the replies that fit, in their order, branches cut to `budget` tokens of one forward pass.

    Errors of the stream (unmatched rewards and the like) pass through.
    """
    digest, highest, signal = hashlib.sha256(), -1, False
    too_long = shortened = replies = replies_kept = 0
    pieces: list[int] = []
    lengths: list[int] = []
    loss_tokens: list[int] = []
    pairs: list[float] = []
    pictures: set[str] = set()
    tasks: list[str] = []

    def fitting() -> Iterator[TrainingSequence]:
        nonlocal too_long, shortened, replies, replies_kept, highest, signal
        for given in sequences:
            replies += len(set(given.reply_numbers()))
            one = without_long_replies(given, max_tokens=max_tokens)
            if one is None:
                too_long += 1
                continue
            shortened += one is not given
            replies_kept += len(set(one.reply_numbers()))
            highest = max(highest, *one.token_ids, *itertools.chain.from_iterable(one.allowed))
            signal = signal or any(one.advantages)
            digest.update((repr(one) + (repr(one.images) if one.images else "")).encode())
            pictures.update(image.digest for image in one.images)
            cut = split_branches(one, budget=budget)
            pieces.append(len(cut))
            tasks.append(one.task)
            lengths.extend(len(piece.token_ids) for piece in cut)
            loss_tokens.extend(len(piece.positions) for piece in cut)
            pairs.extend(piece.pairs for piece in cut)
            yield from cut

    file.parent.mkdir(parents=True, exist_ok=True)
    stream = fitting()
    aside = unfinished_sequences(file)
    with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        while part := list(itertools.islice(stream, ROWS)):
            writer.write_batch(pa.RecordBatch.from_pylist([_row(one) for one in part], schema=SCHEMA))
    aside.rename(file)
    return Facts(
        digest=digest.hexdigest(),
        too_long=too_long,
        shortened=shortened,
        replies=replies,
        replies_too_long=replies - replies_kept,
        pieces=pieces,
        lengths=lengths,
        loss_tokens=loss_tokens,
        pairs=pairs,
        highest=highest,
        signal=signal,
        pictures=tuple(sorted(pictures)),
        tasks=tuple(tasks),
    )


def unfinished_sequences(file: Path) -> Path:
    """Where the file is while it is written: who still reads an older one keeps that."""
    return file.with_suffix(".tmp")


def _row(one: TrainingSequence) -> dict[str, Any]:
    """Without the copies that `dataclasses.asdict` makes of every list."""
    images = [{"digest": image.digest, "start": image.start, "length": image.length} for image in one.images]
    return {name: getattr(one, name) for name in SCHEMA.names} | {"images": images}


class StoredSequences(Sequence[TrainingSequence]):
    """What `write_sequences` wrote, by index. `images`: files of the pictures that they show, by digest."""

    def __init__(self, file: Path, facts: Facts, *, images: Mapping[str, bytes] | None = None) -> None:
        self.facts, self.images = facts, images or {}
        self._map = pa.memory_map(str(file))
        self._reader = pa.ipc.open_file(self._map)

    def __len__(self) -> int:
        return len(self.facts.lengths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        number, row = divmod(index % len(self), ROWS)
        [values] = self._reader.get_batch(number).slice(row, 1).to_pylist()
        branches = tuple((low, high) for low, high in values["branches"])
        images = tuple(ImageSpan(**one) for one in values["images"])
        return TrainingSequence(**{**values, "branches": branches, "images": images})

    def close(self) -> None:
        self._map.close()
