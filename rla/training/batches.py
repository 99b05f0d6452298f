"""The sequences of a stage on disk, and the optimizer steps and forward passes that they are cut into.

`write_sequences` stores a stream once, as a row for each sequence of an Arrow IPC file, and `StoredSequences` maps it
into memory: a stage holds one forward pass at a time, not its trajectories. A sequence whose branches exceed the budget
of a forward pass is stored as several pieces that stay in one optimizer step. Branches do not see each other, so the
losses are the same, the gradients add up to the same, and the budget changes no result.

An epoch is shuffled by seed and cut into `updates` parts whose sizes differ by at most one (fewer parts if there are
fewer sequences), so every sequence trains. With `zero_advantage: count_groups` the sequences of a task stay together. A
part is sorted by length and cut into micro-batches of at most `tokens_per_batch` tokens; a longer sequence is a micro-
batch alone. A micro-batch is one row of sequences behind each other (`rla.training.packing`), or for models that cannot
pack a row for each, padded on the right, which causal attention never sees.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from rla.pictures.encoder import VisionCollator, VisionInputs, VisionText
from rla.store.records import ImageSpan
from rla.training.packing import Forks, Packing, forks, pack
from rla.training.sequences import TrainingSequence, grouped, split_branches, without_long_replies

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


@dataclass(slots=True, kw_only=True)
class SequenceStats:
    """Numbers of a stored file. `digest` is the SHA-256 of its sequences.

    `too_long` sequences lost all replies to the limit and are not stored, `shortened` ones lost some: together
    `replies_too_long` of all `replies`. `pieces` and `tasks` have an entry for each sequence, the other lists one for
    each stored piece.
    """

    digest: str = ""
    too_long: int = 0
    shortened: int = 0
    replies: int = 0
    replies_too_long: int = 0
    highest: int = -1  # token id that was sampled, read or offered
    signal: bool = False  # whether any advantage is not zero
    pictures: tuple[str, ...] = ()  # digests
    pieces: list[int] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    loss_tokens: list[int] = field(default_factory=list)
    pairs: list[float] = field(default_factory=list)

    def groups(self, *, by_task: bool) -> list[list[int]]:
        """The pieces that stay in one optimizer step: those of a sequence, or of all sequences of a task."""
        ends = list(itertools.accumulate(self.pieces))
        found: dict[Any, list[int]] = {}
        for number, (task, end, count) in enumerate(zip(self.tasks, ends, self.pieces, strict=True)):
            found.setdefault(task if by_task else number, []).extend(range(end - count, end))
        return list(found.values())


def write_sequences(
    file: Path, sequences: Iterable[TrainingSequence], *, max_tokens: int, budget: int
) -> SequenceStats:
    """Store the replies that end within `max_tokens`, in their order, branches cut to `budget` tokens of a pass.

    Errors of the stream (unmatched rewards and the like) pass through.
    """
    stats, digest, pictures = SequenceStats(), hashlib.sha256(), set[str]()

    def pieces() -> Iterator[TrainingSequence]:
        for given in sequences:
            replies = len(set(given.reply_numbers()))
            stats.replies += replies
            one = without_long_replies(given, max_tokens=max_tokens)
            if one is None:
                stats.too_long += 1
                stats.replies_too_long += replies
                continue
            stats.shortened += one is not given
            stats.replies_too_long += replies - len(set(one.reply_numbers()))
            stats.highest = max(stats.highest, *one.token_ids, *itertools.chain.from_iterable(one.allowed))
            stats.signal = stats.signal or any(one.advantages)
            digest.update((repr(one) + (repr(one.images) if one.images else "")).encode())
            pictures.update(image.digest for image in one.images)
            cut = split_branches(one, budget=budget)
            stats.pieces.append(len(cut))
            stats.tasks.append(one.task)
            stats.lengths.extend(len(piece.token_ids) for piece in cut)
            stats.loss_tokens.extend(len(piece.positions) for piece in cut)
            stats.pairs.extend(piece.pairs for piece in cut)
            yield from cut

    file.parent.mkdir(parents=True, exist_ok=True)
    stream, aside = pieces(), file.with_suffix(".tmp")  # a reader of an older file keeps it
    with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        while part := list(itertools.islice(stream, ROWS)):
            writer.write_batch(pa.RecordBatch.from_pylist([_row(one) for one in part], schema=SCHEMA))
    aside.rename(file)
    stats.digest, stats.pictures = digest.hexdigest(), tuple(sorted(pictures))
    return stats


def _row(one: TrainingSequence) -> dict[str, Any]:
    """The columns of a sequence, without the copies of every list that `dataclasses.asdict` makes."""
    images = [{"digest": image.digest, "start": image.start, "length": image.length} for image in one.images]
    return {name: getattr(one, name) for name in SCHEMA.names} | {"images": images}


class StoredSequences(Sequence[TrainingSequence]):
    """The sequences that `write_sequences` stored, by index. `images`: the PNG files of their pictures by digest."""

    def __init__(self, file: Path, stats: SequenceStats, *, images: Mapping[str, bytes] | None = None) -> None:
        self.stats, self.images = stats, images or {}
        self._map = pa.memory_map(str(file))
        self._reader = pa.ipc.open_file(self._map)

    def __len__(self) -> int:
        return len(self.stats.lengths)

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


def steps_per_epoch(count: int, *, updates: int, sequences_per_update: int) -> int:
    """Optimizer steps of an epoch of `count` sequences: a stated number, or one for every so many sequences."""
    return ceil(count / sequences_per_update) if sequences_per_update else updates


def plan_updates(count: int, *, updates: int, epochs: int, seed: int) -> list[list[int]]:
    """The indices of each optimizer step's sequences; an epoch holds every index once."""
    plan: list[list[int]] = []
    for epoch in range(epochs):
        order = list(range(count))
        random.Random(f"{seed}/{epoch}").shuffle(order)
        parts = min(updates, count)
        bounds = [count * part // parts for part in range(parts + 1)] if parts else []
        plan += [order[low:high] for low, high in itertools.pairwise(bounds)]
    return plan


def micro_batches(
    lengths: Sequence[int], indices: Sequence[int], *, tokens_per_batch: int, packed: bool
) -> list[list[int]]:
    """`indices`, longest first, cut so that their tokens stay within the budget; padded ones count as the longest."""

    def fits(batch: list[int], index: int) -> bool:
        together = (*batch, index)
        cost = sum(lengths[one] for one in together) if packed else len(together) * lengths[batch[0]]
        return cost <= tokens_per_batch

    return grouped(sorted(indices, key=lambda index: (-lengths[index], index)), fits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One forward pass over B rows of length L with N loss tokens.

    `rows`, `columns` (N) locate the hidden state that predicts a token. `packing` is set for a single row of many
    sequences, `forks` for padded rows with branches. `replies` (N) numbers the replies of the loss tokens, `segments`
    (N) the continuations of one prompt: a sequence, or one of its branches, which do not see each other. `allowed`
    (N, A) is filled up with ids of the same row; rows of unrestricted tokens (`restricted` false) are unused. `vision`
    is set for a vision-language model.
    """

    input_ids: Tensor
    packing: Packing | None
    forks: Forks | None
    rows: Tensor
    columns: Tensor
    targets: Tensor
    allowed: Tensor | None
    restricted: Tensor | None
    logp_sampled: Tensor
    advantages: Tensor
    replies: Tensor
    segments: Tensor
    vision: VisionInputs | None = None


def collate(
    chosen: Sequence[TrainingSequence], *, device: torch.device, packed: bool, vision: VisionCollator | None = None
) -> Batch:
    """Tensors of the sequences. The last token of a row is only predicted, so it is not an input."""
    lengths = [len(one.token_ids) - 1 for one in chosen]
    starts = [0, *itertools.accumulate(lengths)] if packed else [0] * len(chosen)
    input_ids = torch.zeros(*((1, sum(lengths)) if packed else (len(chosen), max(lengths))), dtype=torch.long)
    for row, (one, start, length) in enumerate(zip(chosen, starts, lengths, strict=False)):
        input_ids[0 if packed else row, start : start + length] = torch.tensor(one.token_ids[:-1])
    number = [row for row, one in enumerate(chosen) for _ in one.positions]
    columns = [starts[row] + column for row, one in enumerate(chosen) for column in one.predictors()]
    replies = [(row, reply) for row, one in enumerate(chosen) for reply in one.reply_numbers()]
    segments = [(row, reply if chosen[row].branches else 0) for row, reply in replies]
    branches = [[(start, end, one.prefix) for start, end in one.branches] for one in chosen]
    lists = [ids for one in chosen for ids in one.allowed]
    width = max((len(ids) for ids in lists), default=0)
    padded = [ids + [ids[0] if ids else 0] * (width - len(ids)) for ids in lists]
    inputs = None
    if vision is not None:
        texts = [
            VisionText(
                length=length, images=one.images, branches=[(low, min(high, length), at) for low, high, at in own]
            )
            for one, length, own in zip(chosen, lengths, branches, strict=True)
        ]
        inputs = vision.inputs(texts, packed=packed, device=device)
    return Batch(
        input_ids=input_ids.to(device),
        packing=pack(lengths, branches, device=device) if packed else None,
        forks=None if packed else forks(branches, input_ids.shape[1], device=device),
        rows=torch.tensor([0] * len(number) if packed else number, device=device),
        columns=torch.tensor(columns, device=device),
        targets=torch.tensor([one.token_ids[position] for one in chosen for position in one.positions], device=device),
        allowed=torch.tensor(padded, device=device) if width else None,
        restricted=torch.tensor([bool(ids) for ids in lists], device=device) if width else None,
        logp_sampled=torch.tensor([x for one in chosen for x in one.logp], dtype=torch.float32, device=device),
        advantages=torch.tensor([x for one in chosen for x in one.advantages], dtype=torch.float32, device=device),
        replies=_numbered(replies).to(device),
        segments=_numbered(segments).to(device),
        vision=inputs,
    )


def _numbered(units: Sequence[tuple[int, int]]) -> Tensor:
    """Equal units get equal numbers, from 0 on."""
    numbers: dict[tuple[int, int], int] = {}
    return torch.tensor([numbers.setdefault(unit, len(numbers)) for unit in units], dtype=torch.long)
