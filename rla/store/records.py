"""The records that pass between stages. `Task`, `Trajectory` and `StepScore` are rows of shards, the others are parts
of these rows; `schemas/` holds the columns. Verdicts and standings are in `rla.adaptation.acceptance`, candidates in
`rla.adaptation.candidates`, rewards in `rla.credit.estimators`.

A *task* occupies a *slot* of the pool: the slot is the id of the root task it descends from, so an adapted task
replaces its parent and the number of slots never changes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any


class StopReason(StrEnum):
    WON = "won"
    ENDED = "ended"  # by the environment, and not won
    MAX_STEPS = "max_steps"
    CONTEXT = "context"
    ENV_ERROR = "env_error"


class Status(StrEnum):
    """`active` tasks train; `pending` ones are measured first and train only if they are accepted."""

    ACTIVE = "active"
    PENDING = "pending"


class Direction(StrEnum):
    """Which way the critic asks a task to move."""

    HARDER = "harder"
    EASIER = "easier"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One row of a `tasks` shard. `payload` is the environment's own JSON text; `task_id` is its content hash."""

    task_id: str
    env: str
    split: str
    slot: str
    kind: str
    scene: str
    instruction: str
    payload: str
    status: str = Status.ACTIVE.value
    parent_id: str | None = None
    depth: int = 0
    created: int = 0
    direction: str | None = None
    edit: str | None = None
    plan_length: int | None = None

    def row(self) -> dict[str, Any]:
        return columns(self)


def columns(record: Any) -> dict[str, Any]:
    """The fields of a record by name, not copied: `asdict` copies every token of a trajectory."""
    return {entry.name: getattr(record, entry.name) for entry in fields(record)}


def content_id(*parts: str) -> str:
    """16 hex digits that identify the content `parts` (SHA-256, length-prefixed so that no two lists collide)."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One action of an episode. `start:end` is the span of its sampled tokens in `segments[segment].token_ids`."""

    observation: str
    commands: tuple[str, ...]
    reply: str
    action: str
    valid: bool
    truncated: bool
    segment: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """An append-only run of tokens. `sampled`, `logprobs` align with `token_ids` (log-probability 0 if not sampled).

    `allowed` has one entry per sampled token, in order: the ids among which it was drawn, or an empty list if
    sampling was unrestricted.
    """

    token_ids: list[int]
    sampled: list[bool]
    logprobs: list[float]
    allowed: list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownImage:
    """A distinct image of an episode: SHA-256 (hex) and bytes of its PNG file.

    `shown` has {"observation", "position"} for each time it was seen. Observation 0 is the reset's, so
    step i was taken at observation i; the position is its place among the images of that observation.
    """

    digest: str
    png: bytes
    shown: list[dict[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSpan:
    """The span of the tokens of the picture `digest` in a run of tokens."""

    digest: str
    start: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One episode. `outcome` is +1 iff it was won, else -1; `reward`: the sum of its rewards, if the task has any.

    `places`: for each step a digest of the state that it was taken in, if the environment gives one. `calls`: {"step",
    "status"} of every tool call, in order, if the policy may call tools. `images`: with their bytes; if they lie in a
    shard of their own (`rla.pictures.shard`), `screens` has their digests, per observation.
    `image_spans`: {"segment", "digest", "start", "length"} of each picture that the policy saw.
    """

    trajectory_id: str
    task_id: str
    slot: str
    status: str
    iteration: int
    rollout: int
    seed: int
    outcome: int
    stop_reason: str
    instruction: str
    kind: str
    policy: str
    steps: list[Step]
    segments: list[Segment]
    final_observation: str
    error: str | None = None
    reward: float | None = None
    images: list[ShownImage] | None = None
    places: list[str | None] | None = None
    calls: list[dict[str, Any]] | None = None
    screens: list[list[str]] | None = None
    image_spans: list[dict[str, Any]] | None = None

    def row(self) -> dict[str, Any]:
        nested = {"steps": list(map(columns, self.steps)), "segments": list(map(columns, self.segments))}
        images = None if self.images is None else list(map(columns, self.images))
        return columns(self) | nested | {"images": images}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One sampled verdict on a step: `score` is +1 or -1, and None if the reply did not parse."""

    score: int | None
    text: str
    truncated: bool
    token_ids: list[int]
    logprobs: list[float]
    allowed: list[list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScore:
    """All judgements of one step: they share `prompt_ids`. `mean_score` is over the valid ones (none: null).

    `image_spans`: {"digest", "start", "length"} of each picture in the prompt.
    """

    trajectory_id: str
    task_id: str
    step: int
    prompt_ids: list[int]
    mean_score: float | None
    judgements: list[Judgement]
    image_spans: list[dict[str, Any]] | None = None

    def row(self) -> dict[str, Any]:
        return columns(self) | {"judgements": list(map(columns, self.judgements))}
