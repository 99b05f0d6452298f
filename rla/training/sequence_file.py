"""The sequences of a stage, on disk: written once from a stream, then read one by one in any order.

An Arrow IPC file, a row for each sequence, mapped into memory: what a stage holds at any time is one forward pass,
not its trajectories. Only numbers per sequence are kept (`lengths`, counts). The file belongs to one run of the
stage: it is written anew when the stage starts and removed when it ends.

A sequence whose branches exceed the budget of a forward pass is stored as several, which stay together in one optimizer
step, so that the budget changes no result. Branches do not see each other, so
the pieces of a row give the losses and, added up, the gradient of the whole row. What a piece costs anew is its prompt.

A text that is longer than a limit loses the replies that end beyond it: the later steps of an episode, a judgement
that is too long. A reply sees only what comes before it, so those that remain train as they would have.

The pictures of the sequences lie in a second Arrow IPC file, each once, and are read by digest whenever a pass shows
them: a stage holds those of one forward pass at a time.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from rla.store.records import ImageSpan
from rla.training.data import TrainingSequence, images_within

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
IMAGES = pa.schema([("digest", pa.string()), ("png", pa.binary())])


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


def split_branches(sequence: TrainingSequence, *, budget: int) -> list[TrainingSequence]:
    """Sequences of at most `budget` tokens, each the prompt with some of the branches, in their order.

    A branch that does not fit beside the prompt stands alone with it. A sequence without branches is never cut.
    """
    if len(sequence.token_ids) <= budget:
        return [sequence]
    groups: list[list[int]] = []
    used = 0
    for number, (start, end) in enumerate(sequence.branches):
        if groups and used + end - start <= budget:
            groups[-1].append(number)
            used += end - start
        else:
            groups.append([number])
            used = sequence.prefix + end - start
    return [only_branches(sequence, group) for group in groups] or [sequence]


def without_long_replies(sequence: TrainingSequence, *, max_tokens: int) -> TrainingSequence | None:
    """The replies that end within the first `max_tokens` tokens of their text; None where there is none.

    A reply remains whole or not at all.
    """
    if sequence.longest <= max_tokens:
        return sequence
    if sequence.branches:
        fit = [n for n, (start, end) in enumerate(sequence.branches) if sequence.prefix + end - start <= max_tokens]
        return only_branches(sequence, fit) if fit else None
    replies = sequence.reply_numbers()
    late = {reply for reply, position in zip(replies, sequence.positions, strict=True) if position >= max_tokens}
    kept = [index for index, reply in enumerate(replies) if reply not in late]
    if not kept:
        return None
    count = sequence.positions[kept[-1]] + 1
    images = images_within(sequence.images, count)
    return replace(only_tokens(sequence, kept), token_ids=sequence.token_ids[:count], images=images)


def only_branches(sequence: TrainingSequence, numbers: Sequence[int]) -> TrainingSequence:
    """The prompt and the branches of these numbers. One branch alone is a plain text."""
    token_ids = sequence.token_ids[: sequence.prefix]
    branches: list[tuple[int, int]] = []
    kept: list[int] = []  # loss tokens
    positions: list[int] = []
    for start, end in (sequence.branches[number] for number in numbers):
        own = [index for index, position in enumerate(sequence.positions) if start <= position < end]
        positions += [sequence.positions[index] - start + len(token_ids) for index in own]
        kept += own
        branches.append((len(token_ids), len(token_ids) + end - start))
        token_ids = token_ids + sequence.token_ids[start:end]
    return replace(
        only_tokens(sequence, kept),
        token_ids=token_ids,
        positions=positions,
        branches=tuple(branches) if len(branches) > 1 else (),
    )


def only_tokens(sequence: TrainingSequence, kept: Sequence[int]) -> TrainingSequence:
    """The same tokens, of whose loss tokens those of these numbers remain."""
    replies = sequence.reply_numbers()
    return replace(
        sequence,
        positions=[sequence.positions[index] for index in kept],
        logp=[sequence.logp[index] for index in kept],
        allowed=[sequence.allowed[index] for index in kept],
        advantages=[sequence.advantages[index] for index in kept],
        replies=[replies[index] for index in kept],
    )


def write_image_file(file: Path, images: Iterable[tuple[str, bytes]]) -> None:
    """Store (digest, PNG) pairs as they come, one at a time in memory."""
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_suffix(".tmp")
    with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_file(sink, IMAGES) as writer:
        for digest, png in images:
            writer.write_batch(pa.record_batch([[digest], [png]], schema=IMAGES))
    aside.rename(file)


class StoredImages(Mapping[str, bytes]):
    """What `write_image_file` wrote, by digest."""

    def __init__(self, file: Path) -> None:
        self._map = pa.memory_map(str(file))
        self._reader = pa.ipc.open_file(self._map)
        count = self._reader.num_record_batches
        self._places = {self._reader.get_batch(place)["digest"][0].as_py(): place for place in range(count)}

    def __getitem__(self, digest: str) -> bytes:
        png: bytes = self._reader.get_batch(self._places[digest])["png"][0].as_py()
        return png

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def close(self) -> None:
        self._map.close()
