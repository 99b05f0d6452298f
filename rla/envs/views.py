"""What environments and the loop tell each other about a task or a step, beside the observation itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Message = dict[str, str]  # {"role": ..., "content": ...}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeView:
    """What a judge may see of one step. The outcome is not among it."""

    instruction: str
    history: Sequence[tuple[str, str]]  # (observation, action) before this step
    observation: str
    commands: Sequence[str]
    reply: str
    action: str
    valid: bool
    next_observation: str
    images: tuple[tuple[bytes, ...], ...] = ()  # PNG files of the last observations, that of the step in the end
    next_images: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalView:
    """What a proposer is told beside the task itself. `critique` is a text of models: data, whatever it says."""

    direction: str
    accuracy: float
    critique: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """An expert's episode: per step the observation, the commands offered and the action; then the last text.

    `images`: the PNG files of every observation, the last one included; empty where the environment shows none.
    """

    observations: list[str]
    commands: list[tuple[str, ...]]
    actions: list[str]
    final_observation: str
    won: bool
    images: Sequence[tuple[bytes, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """An action in some state, what it led to, and whether it helped: +1 or -1, with a short reason.

    `before` and `after`: how much was left to do, by the environment's own solver (infinite: no plan leads to the
    goal). None where it has no such measure. `next_images`: what the action led to, as pictures.
    """

    action: str
    next_observation: str
    score: int
    reason: str
    before: float | None = None
    after: float | None = None
    next_images: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStep:
    """A step that was played, the text that answered it, and how the calls of a tool that it made ended, in order."""

    action: str
    answer: str
    statuses: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What a reward model that judges no single steps is taught on one task: a prompt, and replies that are right."""

    messages: list[Message]
    replies: list[str]


def reference_row(task_id: str) -> str:
    """The trajectory id under which a scores shard holds the scores of a task's reference."""
    return f"reference-{task_id}"


class RejectedEdit(Exception):
    """A proposed edit that is not legal, not provable or not new; the message is the reason, kept beside it."""
