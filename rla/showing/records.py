"""What is shown of an episode: each step with its votes, what it was paid, and what the environment says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One vote of the reward model: +1, -1, or nothing where its `text` could not be read. `reward`: what the vote
    itself was paid, where the reward model trains on it.
    """

    score: int | None
    text: str
    reward: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCall:
    """A call of a tool, as a reply asked for it. `status`: how it ended. `fault`: why it could not be read."""

    name: str
    arguments: Mapping[str, Any]
    status: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownStep:
    """`reward`, `advantage`: of the policy. `label`: +1 where the step helped and -1 where it did not, by the
    environment's own solver; each is None where nobody has computed it. `images`: PNG files of what was observed.
    `calls`: those that the reply made; the next observation is what they gave.
    """

    index: int
    observation: str
    reply: str
    action: str
    valid: bool
    votes: Sequence[Vote] = ()
    reward: float | None = None
    advantage: float | None = None
    label: int | None = None
    images: Sequence[bytes] = ()
    calls: Sequence[ShownCall] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEpisode:
    """One episode of an iteration, or of an evaluation. `verdict`: the environment's last answer, and `last_images` the
    PNG files that came with it.
    """

    trajectory_id: str
    task_id: str
    slot: str
    kind: str
    status: str
    iteration: int
    rollout: int
    won: bool
    stop_reason: str
    instruction: str
    steps: Sequence[ShownStep]
    verdict: str
    last_images: Sequence[bytes] = ()
    error: str | None = None
    reward: float | None = None

    @property
    def ended(self) -> str:
        return "won" if self.won else f"lost ({self.stop_reason})"

    @property
    def title(self) -> str:
        """One line: which episode it is and how it ended."""
        return (
            f"episode {self.trajectory_id}: {self.ended} after {len(self.steps)} steps; task {self.task_id} "
            f"({self.kind}), rollout {self.rollout}, iteration {self.iteration}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Some steps of an episode, and why they are shown. `steps`: indices; None: all of them."""

    episode: ShownEpisode
    steps: Sequence[int] | None = None
    why: str = ""

    @property
    def shown(self) -> list[ShownStep]:
        return [step for step in self.episode.steps if self.steps is None or step.index in self.steps]

    @property
    def to_the_end(self) -> bool:
        """Whether the last step is among those that are shown; an episode may have none."""
        last = self.shown[-1].index if self.shown else -1
        return last + 1 == len(self.episode.steps)
