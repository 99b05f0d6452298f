"""Records that environments and the loop exchange about a task or a step.

A `Course` counts in which phase the episodes of a task ended and how they spent their steps. Every episode goes through
the phases of its task in order; a phase ends when its goal is reached. The critic chooses a phase to change from it: if
the task is too hard, the phase in which most episodes ended; if it is too easy, the phase that took the fewest steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rla.store.records import Direction

Message = dict[str, str]  # {"role": ..., "content": ...}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeView:
    """One step as a judge sees it, without the outcome of the episode."""

    instruction: str
    history: Sequence[tuple[str, str]]  # (observation, action) before this step
    observation: str
    commands: Sequence[str]
    reply: str
    action: str
    valid: bool
    next_observation: str
    images: tuple[tuple[bytes, ...], ...] = ()  # PNG files of the last observations; this step's come last
    next_images: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalView:
    """The context of a proposal. `critique` was written by models and is untrusted."""

    direction: str
    accuracy: float
    critique: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """An expert's episode: for each step the observation, the commands offered and the action; then the last text.

    `images`: the PNG files of every observation, including the last; empty if the environment shows no images.
    """

    observations: list[str]
    commands: list[tuple[str, ...]]
    actions: list[str]
    final_observation: str
    won: bool
    images: Sequence[tuple[bytes, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """An action, the observation after it, and whether it helped: +1 or -1, with a short reason.

    `before` and `after`: the remaining work according to the environment's own solver (infinite: the goal cannot be
    reached), None if it has no such measure. `next_images`: the images of the next observation.
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
    """A recorded step: its action, the environment's answer, and the status of each tool call it made, in order."""

    action: str
    answer: str
    statuses: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """A supervised example for a reward model that does not judge single steps: a prompt and correct replies."""

    messages: list[Message]
    replies: list[str]


class RejectedEdit(Exception):
    """A proposed edit that is illegal, unprovable or a duplicate; the message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """`name`: the environment's identifier ("finding"), `about`: the same for people ("finding the mug").

    `ended`: lost episodes that never left the phase. `steps`: all steps that were taken in it.
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
        """The name of the phase to change: the one in which most episodes ended (easier), or the one with the fewest
        steps (harder). The first one in a tie; empty if no phase qualifies.
        """
        if direction is Direction.EASIER:
            worst = max(self.phases, key=lambda phase: phase.ended, default=None)
            return worst.name if worst is not None and worst.ended else ""
        least = min(self.phases, key=lambda phase: phase.steps, default=None)
        return least.name if least is not None and self.episodes else ""

    def told(self) -> str:
        """One line for a critique: outcomes, phases in which failures ended, shares of the steps."""
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
