"""How the episodes of one task went: in which phase they ended, and what their steps were spent on.

Every episode goes through the phases of its task in order; a phase ends when what it is about was done. The critic
reads from it what to change: a task that is too hard where most episodes ended, one that is too easy where the
least effort went.
"""

from __future__ import annotations

from dataclasses import dataclass

from rla.store.records import Direction


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
