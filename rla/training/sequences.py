"""From shard rows to the token sequences that train.

Policy: one sequence for each segment of a trajectory; the advantage of step i lies on the sampled tokens of its span,
and a step without a reward row is context. Reward model: one sequence for each step, its prompt once, followed by the
judgements as branches that do not see each other, so the prompt is computed once and not m times.

A token whose only allowed id is itself was not a choice: its log-probability is 0 for any weights, and its gradient is
exactly zero. Such tokens are left out of the loss and of every token count.

Rows are dictionaries with the columns of `rla/store/records.py`; reward rows carry `trajectory_id`, `step`,
`advantage`, and `judgement` (the index of the judgement) for the reward model. Trajectories and scores are streamed; of
the rewards one number per key is kept. Rewards without a match are found when the stream ends.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from rla.errors import UserError
from rla.llm.base import ROUNDING
from rla.pictures.vision import PlacedImage
from rla.store.records import ImageSpan

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
    images: tuple[ImageSpan, ...] = field(default=(), repr=False)  # digested apart, so that texts keep their digest

    def reply_numbers(self) -> list[int]:
        """The number of the reply of each loss token."""
        return self.replies or [0] * len(self.positions)

    @property
    def prefix(self) -> int:
        """The number of tokens that every branch sees."""
        return self.branches[0][0] if self.branches else len(self.token_ids)

    @property
    def longest(self) -> int:
        """The length of the longest text in here, to which a limit on tokens applies."""
        return self.prefix + max((end - start for start, end in self.branches), default=0)

    @property
    def pairs(self) -> float:
        """The number of pairs of a token and one that it attends to."""
        branches = sum(self.prefix * (end - start) + (end - start) ** 2 / 2 for start, end in self.branches)
        return self.prefix**2 / 2 + branches

    def predictors(self) -> list[int]:
        """The index of the token whose hidden state predicts each loss token."""
        starts = {start for start, _ in self.branches}
        return [self.prefix - 1 if position in starts else position - 1 for position in self.positions]

    def select(self, kept: Sequence[int], **changes: Any) -> TrainingSequence:
        """A copy with the loss tokens at these indices alone, and other `changes`."""
        replies = self.reply_numbers()
        selected: dict[str, Any] = {
            "positions": [self.positions[index] for index in kept],
            "logp": [self.logp[index] for index in kept],
            "allowed": [self.allowed[index] for index in kept],
            "advantages": [self.advantages[index] for index in kept],
            "replies": [replies[index] for index in kept],
        }
        return replace(self, **(selected | changes))


class _Sampled(NamedTuple):
    """A sampled token of a segment."""

    position: int
    logp: float
    allowed: list[int]


def policy_sequences(
    trajectories: Iterable[Row], rewards: Iterable[Row], *, max_samples: int = 0, seed: int = 0
) -> Iterator[TrainingSequence]:
    """One sequence for each segment that has a rewarded step, in the order of `trajectories`.

    `max_samples` > 0 keeps that many steps, drawn by `seed`. Raises UserError for a reward that is not a finite number,
    for two rewards of one step, and for rewards of steps that no trajectory has.
    """
    advantages = _advantages(rewards, columns=("trajectory_id", "step"))
    chosen = _draw(advantages, count=max_samples, seed=seed)
    for trajectory in trajectories:
        name = str(trajectory["trajectory_id"])
        by_segment: dict[int, dict[int, tuple[float, int]]] = {}
        for index, step in enumerate(trajectory["steps"]):
            key = (name, index)
            advantage = advantages.pop(key, None)
            if advantage is not None and key in chosen:
                span = range(int(step["start"]), int(step["end"]))
                by_segment.setdefault(int(step["segment"]), {}).update(dict.fromkeys(span, (advantage, index)))
        for number, by_position in sorted(by_segment.items()):
            if number >= len(trajectory["segments"]):
                raise UserError(
                    f"trajectory {name}: a step names segment {number}, and it has {len(trajectory['segments'])}; "
                    "run rollout again"
                )
            segment = trajectory["segments"][number]
            positions = [position for position, sampled in enumerate(segment["sampled"]) if sampled]
            counts = {len(segment[column]) for column in ("token_ids", "logprobs", "sampled")}
            if len(positions) != len(segment["allowed"]) or len(counts) > 1:
                raise UserError(f"trajectory {name}: token columns of different lengths; run rollout again")
            sampled = [
                _Sampled(position, segment["logprobs"][position], allowed)
                for position, allowed in zip(positions, segment["allowed"], strict=True)
            ]
            spans = [span for span in trajectory.get("image_spans") or () if span["segment"] == number]
            yield from _sequence(segment["token_ids"], sampled, by_position, row=trajectory, spans=spans)
    _refuse_unmatched(advantages, units="steps", rows="trajectories")


def reward_model_sequences(
    scores: Iterable[Row],
    rewards: Iterable[Row],
    *,
    max_samples: int = 0,
    seed: int = 0,
    share_prompts: bool = True,
) -> Iterator[TrainingSequence]:
    """One sequence for each step with rewarded judgements, or for each judgement without `share_prompts`.

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
            if not len(tokens) == len(judgement["logprobs"]) == len(judgement["allowed"]):
                raise UserError(f"step {key[1]} of {key[0]}: token columns of different lengths; run score-steps again")
            sampled = [
                _Sampled(position, logp, allowed)
                for position, (logp, allowed) in enumerate(
                    zip(judgement["logprobs"], judgement["allowed"], strict=True), start=len(prompt)
                )
            ]
            by_position = {token.position: (advantage, index) for token in sampled}
            spans = score.get("image_spans") or ()
            judgements += _sequence([*prompt, *tokens], sampled, by_position, row=score, spans=spans)
        if share_prompts and len(judgements) > 1:
            judgements = [_merge(judgements, prefix=len(prompt))]
        yield from judgements
    _refuse_unmatched(advantages, units="judgements", rows="scores")


def _merge(judgements: Sequence[TrainingSequence], *, prefix: int) -> TrainingSequence:
    """Sequences that share their first `prefix` tokens, as one sequence with a branch for each."""
    token_ids = judgements[0].token_ids[:prefix]
    positions: list[int] = []
    branches: list[tuple[int, int]] = []
    for one in judgements:
        start = len(token_ids)
        token_ids += one.token_ids[prefix:]
        positions += [position - prefix + start for position in one.positions]
        branches.append((start, len(token_ids)))
    return replace(
        judgements[0],
        token_ids=token_ids,
        positions=positions,
        logp=[value for one in judgements for value in one.logp],
        allowed=[ids for one in judgements for ids in one.allowed],
        advantages=[value for one in judgements for value in one.advantages],
        branches=tuple(branches),
        replies=[number for one in judgements for number in one.replies],
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
    sampled: Iterable[_Sampled],
    given: Mapping[int, tuple[float, int]],
    *,
    row: Row,
    spans: Iterable[Row],
) -> list[TrainingSequence]:
    """The sequence of one segment; empty if none of its tokens can train.

    `given` has (advantage, reply) by position, `row` is the trajectory or the score, `spans` has its pictures.
    """
    loss_tokens = [token for token in sampled if token.position in given and len(token.allowed) != 1]
    if not loss_tokens:
        return []
    if min(min(token_ids), *(min(token.allowed, default=0) for token in loss_tokens)) < 0:
        raise UserError(f"{row['trajectory_id']} has a token id below 0; run the stage before again")
    for token in loss_tokens:
        if token.position == 0 or (token.allowed and token_ids[token.position] not in token.allowed):
            raise UserError(
                f"token {token.position} could not have been sampled as recorded; run the stage before again"
            )
        if not -math.inf < token.logp <= ROUNDING:
            raise UserError(f"token {token.position} has log-probability {token.logp}; run the stage before again")
    last = loss_tokens[-1].position
    images = (ImageSpan(digest=one["digest"], start=one["start"], length=one["length"]) for one in spans)
    return [
        TrainingSequence(
            token_ids=list(token_ids[: last + 1]),
            positions=[token.position for token in loss_tokens],
            logp=[min(token.logp, 0.0) for token in loss_tokens],
            allowed=[list(token.allowed) for token in loss_tokens],
            advantages=[given[token.position][0] for token in loss_tokens],
            replies=[given[token.position][1] for token in loss_tokens],
            owner=str(row["trajectory_id"]),
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


def split_branches(sequence: TrainingSequence, *, budget: int) -> list[TrainingSequence]:
    """Sequences of at most `budget` tokens, each the prompt with some of the branches in their order.

    A branch that exceeds the budget stands alone with the prompt. A sequence without branches is never cut.
    """
    if len(sequence.token_ids) <= budget:
        return [sequence]
    sizes = [end - start for start, end in sequence.branches]
    room = budget - sequence.prefix
    groups = grouped(range(len(sizes)), lambda group, number: sum(sizes[one] for one in (*group, number)) <= room)
    return [only_branches(sequence, group) for group in groups] or [sequence]


def without_long_replies(sequence: TrainingSequence, *, max_tokens: int) -> TrainingSequence | None:
    """The replies that end within the first `max_tokens` tokens of their text; None if every reply is longer.

    A reply stays whole or goes. It sees only the tokens before it, so the others train as they would have.
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
    return sequence.select(kept, token_ids=sequence.token_ids[:count], images=_images_within(sequence.images, count))


def only_branches(sequence: TrainingSequence, numbers: Sequence[int]) -> TrainingSequence:
    """The prompt and the branches of these numbers. A single branch makes a plain text."""
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
    return sequence.select(
        kept, token_ids=token_ids, positions=positions, branches=tuple(branches) if len(branches) > 1 else ()
    )
