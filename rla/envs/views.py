"""What environments and the loop tell each other about a task or a step, beside the observation itself.

A `Course` says in which phase the episodes of one task ended, and what their steps were spent on. Every episode goes
through the phases of its task in order; a phase ends when what it is about was done. The critic reads from it what to
change: a task that is too hard where most episodes ended, one that is too easy where the least effort went.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rla.store.records import Direction

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """`name` is the environment's own word for it ("finding"), `about` the same for people ("finding the mug").

    `ended`: episodes that were not won and never got beyond it. `steps`: all steps that were made in it.
    """

    name: str
    about: str
    ended: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """`episodes` played, those `won`, and `spent`: kinds of actions with their counts, most frequent first."""

    episodes: int
    won: int
    phases: tuple[Phase, ...]
    spent: tuple[tuple[str, int], ...]

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)

    def focus(self, direction: Direction) -> str:
        """The name of the phase to change: where most episodes ended (easier), where the fewest steps went (harder).

        Empty where there is nothing to go by. Of equal ones the first.
        """
        if direction is Direction.EASIER:
            worst = max(self.phases, key=lambda phase: phase.ended, default=None)
            return worst.name if worst is not None and worst.ended else ""
        least = min(self.phases, key=lambda phase: phase.steps, default=None)
        return least.name if least is not None and self.episodes else ""

    def told(self) -> str:
        """One line for a critique: outcomes, where failures ended, shares of the steps."""
        if not self.episodes:
            return ""
        ended = ", ".join(f"{phase.about} {phase.ended}" for phase in self.phases if phase.ended)
        shares = ", ".join(f"{phase.about} {_share(phase.steps, self.steps)}" for phase in self.phases)
        spent = ", ".join(f"{kind} {_share(count, self.steps)}" for kind, count in self.spent[:4])
        parts = [f"won {self.won} of {self.episodes}, {self.steps / self.episodes:.1f} steps on average"]
        parts += [f"failures ended at: {ended}"] if ended else []
        parts += [f"steps by phase: {shares}", f"by action: {spent}"] if self.steps else []
        return "; ".join(parts)


def _share(count: int, total: int) -> str:
    return f"{count / total:.0%}"
