"""From shard rows to training sequences: sampled tokens, what they were sampled from, their advantages.

Policy: one sequence per segment of a trajectory; the advantage of step i lies on the sampled tokens of the
step's span. A step without a reward row is context. Reward model: one sequence per step, its prompt once and
then the judgements as branches that do not see each other: the prompt is computed once and not m times.

A token whose only allowed id is itself was not a choice: its log-probability is 0 whatever the weights, its
gradient is exactly zero. Such tokens are left out of the loss and of every token count.

Rows are plain dictionaries with the columns of `rla/store/records.py`; reward rows carry `trajectory_id`, `step`,
`advantage`, and `judgement` (the index of the judgement) for the reward model. Trajectories and scores are read as they
come and not kept; of the rewards, a number for each key is. What does not match is found when the stream ends.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rla.errors import UserError
from rla.llm.base import ROUNDING
from rla.store.records import ImageSpan

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSequence:
    """Token ids and, per loss token: position, sampling log-probability, allowed ids (empty: all), advantage.

    `token_ids` ends with the last loss token: what follows it cannot change any gradient. `branches` are
    spans (start, end) that each continue the tokens before the first of them; none: plain text. `replies` says which
    reply each loss token belongs to (a step of the policy, a judgement), `owner` which trajectory, `task` which task.
    `images`: where pictures stand among the tokens that all branches see.
    """

    token_ids: list[int]
    positions: list[int]
    logp: list[float]
    allowed: list[list[int]]
    advantages: list[float]
    branches: tuple[tuple[int, int], ...] = ()
    replies: list[int] = field(default_factory=list)  # empty: one reply
    owner: str = ""
    task: str = field(default="", repr=False, compare=False)  # the owner's
    images: tuple[ImageSpan, ...] = field(default=(), repr=False)  # apart in digests: texts alone keep theirs

    def reply_numbers(self) -> list[int]:
        """Per loss token the number of its reply."""
        return self.replies or [0] * len(self.positions)

    @property
    def prefix(self) -> int:
        """The number of tokens that every branch sees."""
        return self.branches[0][0] if self.branches else len(self.token_ids)

    @property
    def longest(self) -> int:
        """The length of the longest text that this stands for: what a limit on tokens applies to."""
        return self.prefix + max((end - start for start, end in self.branches), default=0)

    @property
    def pairs(self) -> float:
        """The number of pairs of a token and one that it sees."""
        branches = sum(self.prefix * (end - start) + (end - start) ** 2 / 2 for start, end in self.branches)
        return self.prefix**2 / 2 + branches

    def predictors(self) -> list[int]:
        """Per loss token the index of the token whose hidden state predicts it."""
        starts = {start for start, _ in self.branches}
        return [self.prefix - 1 if position in starts else position - 1 for position in self.positions]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sampled:
    """One sampled token of a segment."""

    position: int
    logp: float
    allowed: list[int]


def policy_sequences(
    trajectories: Iterable[Row], rewards: Iterable[Row], *, max_samples: int = 0, seed: int = 0
) -> Iterator[TrainingSequence]:
    """One sequence per segment that has a rewarded step, in the order of `trajectories`.

    `max_samples` > 0 keeps that many steps, drawn by `seed`. Raises UserError for a reward that is not a
    finite number, for two rewards of one step, and for rewards of steps that no trajectory has.
    """
    advantages = _advantages(rewards, columns=("trajectory_id", "step"))
    chosen = _draw(advantages, units=advantages, count=max_samples, seed=seed)
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
            sampled = _sampled_tokens(segment, owner=f"trajectory {name}")
            shown = [span for span in trajectory.get("image_spans") or () if span["segment"] == number]
            yield from _sequence(segment["token_ids"], sampled, by_position, row=trajectory, shown=shown)
    _refuse_unmatched(advantages, what="steps", rows="trajectories")


def reward_model_sequences(
    scores: Iterable[Row],
    rewards: Iterable[Row],
    *,
    max_samples: int = 0,
    seed: int = 0,
    share_prompts: bool = True,
) -> Iterator[TrainingSequence]:
    """One sequence per step with rewarded judgements, or per judgement without `share_prompts`.

    `max_samples` > 0 keeps the judgements of that many steps. Raises UserError as `policy_sequences` does.
    """
    advantages = _advantages(rewards, columns=("trajectory_id", "step", "judgement"))
    chosen = _draw(advantages, units={key[:2] for key in advantages}, count=max_samples, seed=seed)
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
                    f"step {key[1]} of {key[0]} has a judgement without token ids, as of a chat server (judge.server: "
                    "server), which cannot train; set train_rm.enabled: false, or judge with the reward model"
                )
            if not len(tokens) == len(judgement["logprobs"]) == len(judgement["allowed"]):
                raise UserError(f"step {key[1]} of {key[0]}: token columns of different lengths; run score-steps again")
            sampled = [
                _Sampled(position=len(prompt) + offset, logp=logp, allowed=allowed)
                for offset, (_, logp, allowed) in enumerate(
                    zip(tokens, judgement["logprobs"], judgement["allowed"], strict=True)
                )
            ]
            by_position = {token.position: (advantage, index) for token in sampled}
            shown = score.get("image_spans") or ()
            judgements += _sequence([*prompt, *tokens], sampled, by_position, row=score, shown=shown)
        if share_prompts and len(judgements) > 1:
            judgements = [_merge(judgements, prefix=len(prompt))]
        yield from judgements
    _refuse_unmatched(advantages, what="judgements", rows="scores")


def _merge(judgements: Sequence[TrainingSequence], *, prefix: int) -> TrainingSequence:
    """Sequences that share their first `prefix` tokens as one with a branch for each."""
    token_ids = judgements[0].token_ids[:prefix]
    positions: list[int] = []
    branches: list[tuple[int, int]] = []
    for one in judgements:
        start = len(token_ids)
        token_ids += one.token_ids[prefix:]
        positions += [position - prefix + start for position in one.positions]
        branches.append((start, len(token_ids)))
    return TrainingSequence(
        token_ids=token_ids,
        positions=positions,
        logp=[value for one in judgements for value in one.logp],
        allowed=[ids for one in judgements for ids in one.allowed],
        advantages=[value for one in judgements for value in one.advantages],
        branches=tuple(branches),
        replies=[number for one in judgements for number in one.replies],
        owner=judgements[0].owner,
        task=judgements[0].task,
        images=judgements[0].images,
    )


def _advantages(rewards: Iterable[Row], *, columns: Sequence[str]) -> dict[tuple[Any, ...], float]:
    advantages: dict[tuple[Any, ...], float] = {}
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


def _draw(
    advantages: Mapping[tuple[Any, ...], float], *, units: Iterable[tuple[Any, ...]], count: int, seed: int
) -> set[tuple[Any, ...]]:
    """`count` of the units, the same ones whatever the order of the rows; all of them for 0."""
    ordered = sorted(units)
    if 0 < count < len(ordered):
        return set(random.Random(seed).sample(ordered, count))
    return set(ordered)


def _refuse_unmatched(advantages: Mapping[tuple[Any, ...], float], *, what: str, rows: str) -> None:
    if advantages:
        first = next(iter(advantages))
        raise UserError(
            f"rewards: {len(advantages)} {what} are not among the {rows} (the first: {first}); "
            f"give the {rows} from which these rewards were computed"
        )


def _sampled_tokens(segment: Row, *, owner: str) -> list[_Sampled]:
    positions = [position for position, sampled in enumerate(segment["sampled"]) if sampled]
    counts = {len(segment[name]) for name in ("token_ids", "logprobs", "sampled")}
    if len(positions) != len(segment["allowed"]) or len(counts) > 1:
        raise UserError(f"{owner}: token columns of different lengths; run rollout again")
    return [
        _Sampled(position=position, logp=segment["logprobs"][position], allowed=allowed)
        for position, allowed in zip(positions, segment["allowed"], strict=True)
    ]


def _sequence(
    token_ids: Sequence[int],
    sampled: Iterable[_Sampled],
    given: Mapping[int, tuple[float, int]],
    *,
    row: Row,
    shown: Iterable[Row] = (),
) -> list[TrainingSequence]:
    """The sequence of one segment, or nothing where none of its tokens can train. `given`: (advantage, reply).

    `row`: the trajectory or the score that it is of. `shown`: the pictures of the segment.
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
    spans = (ImageSpan(digest=one["digest"], start=one["start"], length=one["length"]) for one in shown)
    return [
        TrainingSequence(
            token_ids=list(token_ids[: loss_tokens[-1].position + 1]),
            positions=[token.position for token in loss_tokens],
            logp=[min(token.logp, 0.0) for token in loss_tokens],
            allowed=[list(token.allowed) for token in loss_tokens],
            advantages=[given[token.position][0] for token in loss_tokens],
            replies=[given[token.position][1] for token in loss_tokens],
            owner=str(row["trajectory_id"]),
            task=str(row.get("task_id", "")),
            images=images_within(spans, loss_tokens[-1].position),
        )
    ]


def images_within(images: Iterable[ImageSpan], count: int) -> tuple[ImageSpan, ...]:
    """Those that stand among the first `count` tokens. None stands half among them: a reply does not end in one."""
    return tuple(one for one in images if one.start + one.length <= count)
