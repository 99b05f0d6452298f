"""From shard rows to the token sequences that train, stored in one file, and their order.

Policy: one sequence for each segment of a trajectory; the advantage of step i lies on the sampled tokens of its span,
and a step without a reward row is context. Reward model: one sequence for each step, its prompt once, followed by the
judgements as branches that do not see each other, so the prompt is computed once and not m times. A *reply* is the
tokens of one step, or of one judgement. A token whose only allowed id is itself was not a choice: its gradient is
exactly zero, and it is left out of the loss and of every token count.

Rows have the columns of `rla/store/records.py`; reward rows carry `trajectory_id`, `step`, `advantage`, and for the
reward model `judgement`, its index. Trajectories and scores are streamed; of the rewards one number per key is kept.

`write_sequences` stores the stream as lines of JSON, and `StoredSequences` reads one at a time: a stage holds one
forward pass in memory, not its trajectories. A sequence whose branches exceed the budget of a pass is stored as several
pieces that stay in one optimizer step, so the sum of the gradients stays the same, and the budget changes no result.

An epoch is shuffled by seed and cut into `updates` parts whose sizes differ by at most one (fewer parts if there are
fewer sequences).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from rla.errors import UserError
from rla.llm.base import ROUNDING
from rla.pictures.vision import PlacedImage
from rla.store.records import ImageSpan, columns

Row = Mapping[str, Any]
Key = tuple[Any, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An example of supervised training: token ids with a loss weight each.

    A branch (start, end, anchor) is a run of tokens that continues the first `anchor` tokens and sees nothing else but
    itself: many short replies to one long text, in one pass. `images` lie among the tokens, in branches as well.
    """

    token_ids: Sequence[int]
    weights: Sequence[float]
    branches: Sequence[tuple[int, int, int]] = ()
    images: Sequence[PlacedImage] = ()

    @property
    def longest(self) -> int:
        """Tokens of the longest text: of a branch with the tokens that it continues, or of all."""
        return max((anchor + end - start for start, end, anchor in self.branches), default=len(self.token_ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSequence:
    """Token ids and, per loss token: position, sampling log-probability, allowed ids (empty: all), advantage.

    `token_ids` ends with the last loss token, because later tokens cannot change a gradient. `branches` are spans
    (start, end) that each continue the tokens before the first of them; without any it is plain text. `replies` says
    which reply (a step of the policy, a judgement) each loss token belongs to. `images` are spans of picture tokens
    that all branches see.
    """

    token_ids: list[int]
    positions: list[int]
    logp: list[float]
    allowed: list[list[int]]
    advantages: list[float]
    branches: tuple[tuple[int, int], ...] = ()
    replies: list[int] = field(default_factory=list)  # empty: one reply
    owner: str = ""  # trajectory id
    task: str = field(default="", repr=False, compare=False)
    images: tuple[ImageSpan, ...] = ()

    def reply_numbers(self) -> list[int]:
        """The number of the reply of each loss token."""
        return self.replies or [0] * len(self.positions)

    @property
    def prefix(self) -> int:
        """The number of tokens that every branch sees."""
        return self.branches[0][0] if self.branches else len(self.token_ids)

    def predictors(self) -> list[int]:
        """The index of the token whose hidden state predicts each loss token."""
        starts = {start for start, _ in self.branches}
        return [self.prefix - 1 if position in starts else position - 1 for position in self.positions]

    def select(self, kept: Sequence[int], **changes: Any) -> TrainingSequence:
        """A copy with the loss tokens at these indices alone, and other `changes`."""
        columns = {key: getattr(self, key) for key in ("positions", "logp", "allowed", "advantages")}
        columns["replies"] = self.reply_numbers()
        return replace(self, **{key: [values[n] for n in kept] for key, values in columns.items()} | changes)

    @property
    def longest(self) -> int:
        """Tokens of the longest text, as `texts` has them."""
        return self.prefix + max((end - start for start, end in self.branches), default=0)

    def texts(self) -> list[TrainingSequence]:
        """Each branch behind the tokens that it continues, as a sequence without branches."""
        found = []
        for start, end in self.branches:
            kept = [n for n, position in enumerate(self.positions) if start <= position < end]
            positions = [self.positions[n] - start + self.prefix for n in kept]
            token_ids = self.token_ids[: self.prefix] + self.token_ids[start:end]
            found.append(self.select(kept, token_ids=token_ids, positions=positions, branches=()))
        return found or [self]


def policy_sequences(
    trajectories: Iterable[Row], rewards: Iterable[Row], *, max_samples: int = 0, seed: int = 0
) -> Iterator[TrainingSequence]:
    """One sequence for each segment that has a rewarded step, in the order of `trajectories`.

    `max_samples` > 0 keeps that many steps, drawn by `seed`. Raises UserError for a reward that is not a finite number,
    for two rewards of one step, for rewards of steps that no trajectory has, and for tokens that cannot be right.
    """
    advantages = _advantages(rewards, columns=("trajectory_id", "step"))
    chosen = _draw(advantages, count=max_samples, seed=seed)
    for trajectory in trajectories:
        name, segments = str(trajectory["trajectory_id"]), trajectory["segments"]
        by_segment: dict[int, dict[int, tuple[float, int]]] = {}
        for index, step in enumerate(trajectory["steps"]):
            key = (name, index)
            advantage = advantages.pop(key, None)
            if advantage is not None and key in chosen:
                span = range(int(step["start"]), int(step["end"]))
                by_segment.setdefault(int(step["segment"]), {}).update(dict.fromkeys(span, (advantage, index)))
        for number, by_position in sorted(by_segment.items()):
            if number >= len(segments):
                raise UserError(f"{name}: a step names segment {number} of {len(segments)}; run rollout again")
            segment = segments[number]
            sampled = segment["sampled"]
            yield from _sequence(
                segment["token_ids"],
                list(itertools.compress(itertools.count(), sampled)),
                list(itertools.compress(segment["logprobs"], sampled)),
                segment["allowed"],
                given=by_position,
                row=trajectory,
                spans=[span for span in trajectory.get("image_spans") or () if span["segment"] == number],
            )
    _refuse_unmatched(advantages, units="steps", rows="trajectories")


def reward_model_sequences(
    scores: Iterable[Row], rewards: Iterable[Row], *, max_samples: int = 0, seed: int = 0
) -> Iterator[TrainingSequence]:
    """One sequence for each step with rewarded judgements.

    `max_samples` > 0 keeps the judgements of that many steps. Raises UserError as `policy_sequences` does.
    """
    advantages = _advantages(rewards, columns=("trajectory_id", "step", "judgement"))
    chosen = _draw({key[:2] for key in advantages}, count=max_samples, seed=seed)
    for score in scores:
        prompt = score["prompt_ids"]
        judgements: list[TrainingSequence] = []
        for index, judgement in enumerate(score["judgements"]):
            key = (str(score["trajectory_id"]), int(score["step"]), index)
            advantage = advantages.pop(key, None)
            if advantage is None or key[:2] not in chosen:
                continue
            tokens = judgement["token_ids"]
            if not tokens:
                raise UserError(
                    f"step {key[1]} of {key[0]} has a judgement without token ids, as of a chat server "
                    "(judge.server.url), which cannot train; set train_rm.enabled: false, or judge with the reward "
                    "model"
                )
            positions = range(len(prompt), len(prompt) + len(tokens))
            judgements += _sequence(
                [*prompt, *tokens],
                positions,
                judgement["logprobs"],
                judgement["allowed"],
                given=dict.fromkeys(positions, (advantage, index)),
                row=score,
                spans=score.get("image_spans") or (),
            )
        if judgements:
            yield _merged(judgements, prefix=len(prompt))
    _refuse_unmatched(advantages, units="judgements", rows="scores")


def _merged(texts: Sequence[TrainingSequence], *, prefix: int) -> TrainingSequence:
    """Texts that share their first `prefix` tokens, as one sequence with a branch for each; a single one as it is."""
    if len(texts) == 1:
        return texts[0]
    token_ids = texts[0].token_ids[:prefix]
    positions: list[int] = []
    branches: list[tuple[int, int]] = []
    for one in texts:
        start = len(token_ids)
        token_ids += one.token_ids[prefix:]
        positions += [position - prefix + start for position in one.positions]
        branches.append((start, len(token_ids)))
    return replace(
        texts[0],
        token_ids=token_ids,
        positions=positions,
        logp=[value for one in texts for value in one.logp],
        allowed=[ids for one in texts for ids in one.allowed],
        advantages=[value for one in texts for value in one.advantages],
        branches=tuple(branches),
        replies=[number for one in texts for number in one.replies],
    )


def _advantages(rewards: Iterable[Row], *, columns: Sequence[str]) -> dict[Key, float]:
    advantages: dict[Key, float] = {}
    for row in rewards:
        if row["advantage"] is None:
            continue
        key = tuple(row[column] for column in columns)
        value = float(row["advantage"])
        if not math.isfinite(value):
            raise UserError(f"rewards: the advantage of {key} is {value}; run compute-rewards again")
        if key in advantages:
            raise UserError(f"rewards: {key} is there twice; remove the folder and run compute-rewards again")
        advantages[key] = value
    return advantages


def _draw(units: Iterable[Key], *, count: int, seed: int) -> set[Key]:
    """`count` of the units, the same ones for any order of the rows; all of them if `count` is 0."""
    ordered = sorted(units)
    return set(random.Random(seed).sample(ordered, count) if 0 < count < len(ordered) else ordered)


def _refuse_unmatched(advantages: Mapping[Key, float], *, units: str, rows: str) -> None:
    if advantages:
        first = next(iter(advantages))
        raise UserError(
            f"rewards: {len(advantages)} {units} are not among the {rows} (the first: {first}); "
            f"give the {rows} from which these rewards were computed"
        )


def _sequence(
    token_ids: Sequence[int],
    positions: Sequence[int],
    logp: Sequence[float],
    allowed: Sequence[Sequence[int]],
    *,
    given: Mapping[int, tuple[float, int]],
    row: Row,
    spans: Iterable[Row],
) -> list[TrainingSequence]:
    """The sequence of one text; empty if none of its tokens can train.

    `positions`, `logp` and `allowed` have an entry for each sampled token. `given` has (advantage, reply) by position,
    `row` is the trajectory or the score, `spans` has its pictures.
    """
    name = str(row["trajectory_id"])
    if not len(positions) == len(logp) == len(allowed) or max(positions, default=0) >= len(token_ids):
        raise UserError(f"{name}: token columns of different lengths; run the stage before again")
    kept = [n for n, at in enumerate(positions) if at in given and list(allowed[n]) != [token_ids[at]]]
    if not kept:
        return []
    if min(min(token_ids), *(min(allowed[n], default=0) for n in kept)) < 0:
        raise UserError(f"{name}: a token id below 0; run the stage before again")
    for n in kept:
        at, likely = positions[n], -math.inf < logp[n] <= ROUNDING
        if at == 0 or not likely or (allowed[n] and [*allowed[n]].count(token_ids[at]) != 1):
            raise UserError(
                f"{name}: token {at} could not have been sampled as recorded (log-probability {logp[n]:g}); run the "
                "stage before again"
            )
    last = positions[kept[-1]]
    images = (ImageSpan(digest=one["digest"], start=one["start"], length=one["length"]) for one in spans)
    return [
        TrainingSequence(
            token_ids=list(token_ids[: last + 1]),
            positions=[positions[n] for n in kept],
            logp=[min(logp[n], 0.0) for n in kept],
            allowed=[list(allowed[n]) for n in kept],
            advantages=[given[positions[n]][0] for n in kept],
            replies=[given[positions[n]][1] for n in kept],
            owner=name,
            task=str(row.get("task_id", "")),
            images=_images_within(images, last),
        )
    ]


def _images_within(images: Iterable[ImageSpan], count: int) -> tuple[ImageSpan, ...]:
    """The pictures among the first `count` tokens. None is cut in half, because a reply never ends in a picture."""
    return tuple(one for one in images if one.start + one.length <= count)


def grouped(items: Iterable[T], fits: Callable[[list[T], T], bool]) -> list[list[T]]:
    """The items in their order, cut into groups: one opens a new group unless it `fits` the last one."""
    groups: list[list[T]] = []
    for one in items:
        if groups and fits(groups[-1], one):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def split_branches(sequence: TrainingSequence, *, budget: int, packed: bool = True) -> list[TrainingSequence]:
    """Sequences of at most `budget` tokens, each the prompt with some of the branches in their order.

    Unless they are `packed`, each branch is a padded row with its own copy of the prompt. A branch that exceeds the
    budget stands alone with the prompt. A sequence without branches is never cut.
    """
    texts, prefix = sequence.texts(), sequence.prefix

    def fits(group: list[TrainingSequence], *more: TrainingSequence) -> bool:
        sizes = [len(one.token_ids) for one in (*group, *more)]
        return (prefix + sum(size - prefix for size in sizes) if packed else len(sizes) * max(sizes)) <= budget

    return [sequence] if fits(texts) else [_merged(group, prefix=prefix) for group in grouped(texts, fits)]


def without_long_replies(sequence: TrainingSequence, *, max_tokens: int) -> TrainingSequence | None:
    """The replies that end within the first `max_tokens` tokens of their text; None if every reply is longer.

    A reply stays whole or goes. It sees only the tokens before it, so the others train as they would have.
    """
    if sequence.longest <= max_tokens:
        return sequence
    if sequence.branches:
        fitting = [one for one in sequence.texts() if len(one.token_ids) <= max_tokens]
        return _merged(fitting, prefix=sequence.prefix) if fitting else None
    replies = sequence.reply_numbers()
    late = {reply for reply, position in zip(replies, sequence.positions, strict=True) if position >= max_tokens}
    kept = [index for index, reply in enumerate(replies) if reply not in late]
    if not kept:
        return None
    count = sequence.positions[kept[-1]] + 1
    return sequence.select(kept, token_ids=sequence.token_ids[:count], images=_images_within(sequence.images, count))


@dataclass(slots=True, kw_only=True)
class SequenceStats:
    """Numbers of a stored file. `digest` is the SHA-256 of its sequences.

    `replies_too_long` of all `replies` exceed the limit on tokens and are not stored. `pieces` and `tasks` have an
    entry for each sequence that is left, the other lists one for each stored piece.
    """

    digest: str = ""
    replies: int = 0
    replies_too_long: int = 0
    highest: int = -1  # token id that was sampled, read or offered
    signal: bool = False  # whether any advantage is not zero
    pictures: tuple[str, ...] = ()  # digests
    pieces: list[int] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # texts, each a padded row if the model cannot pack
    longest: list[int] = field(default_factory=list)  # tokens of the longest text
    loss_tokens: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # in the file, in bytes

    def groups(self, *, by_task: bool) -> list[list[int]]:
        """The pieces that stay in one optimizer step: those of a sequence, or of all sequences of a task."""
        ends = list(itertools.accumulate(self.pieces))
        found: dict[Any, list[int]] = {}
        for number, (task, end, count) in enumerate(zip(self.tasks, ends, self.pieces, strict=True)):
            found.setdefault(task if by_task else number, []).extend(range(end - count, end))
        return list(found.values())


def write_sequences(
    file: Path, sequences: Iterable[TrainingSequence], *, max_tokens: int, budget: int, packed: bool = True
) -> SequenceStats:
    """Store the replies that end within `max_tokens`, in their order, branches cut to `budget` tokens of a pass.

    `packed`: whether the model packs its rows. Errors of the stream (unmatched rewards and the like) pass through.
    """
    stats, digest, pictures = SequenceStats(), hashlib.sha256(), set[str]()
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as stream:
        for given in sequences:
            replies = len(set(given.reply_numbers()))
            stats.replies += replies
            one = without_long_replies(given, max_tokens=max_tokens)
            if one is None:
                stats.replies_too_long += replies
                continue
            stats.replies_too_long += replies - len(set(one.reply_numbers()))
            stats.highest = max(stats.highest, *one.token_ids, *itertools.chain.from_iterable(one.allowed))
            stats.signal = stats.signal or any(one.advantages)
            digest.update(_line(one))
            pictures.update(image.digest for image in one.images)
            pieces = split_branches(one, budget=budget, packed=packed)
            stats.pieces.append(len(pieces))
            stats.tasks.append(one.task)
            for piece in pieces:
                stats.lengths.append(len(piece.token_ids))
                stats.rows.append(max(1, len(piece.branches)))
                stats.longest.append(piece.longest)
                stats.loss_tokens.append(len(piece.positions))
                stats.places.append(stream.tell())
                stream.write(_line(piece))
    stats.digest, stats.pictures = digest.hexdigest(), tuple(sorted(pictures))
    return stats


def _line(one: TrainingSequence) -> bytes:
    return json.dumps(columns(one), default=columns).encode() + b"\n"


class StoredSequences(Sequence[TrainingSequence]):
    """The sequences that `write_sequences` stored, by index. `png_of` reads the picture with a digest."""

    def __init__(self, file: Path, stats: SequenceStats, *, png_of: Callable[[str], bytes] | None = None) -> None:
        self.stats, self.png_of = stats, png_of or dict[str, bytes]().__getitem__
        self._file = file.open("rb")

    def __len__(self) -> int:
        return len(self.stats.places)

    def __getitem__(self, index: Any) -> Any:
        self._file.seek(self.stats.places[index])
        values = json.loads(self._file.readline())
        branches = tuple((low, high) for low, high in values["branches"])
        images = tuple(ImageSpan(**one) for one in values["images"])
        return TrainingSequence(**values | {"branches": branches, "images": images})

    def close(self) -> None:
        self._file.close()


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
