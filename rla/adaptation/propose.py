"""From a task that should change to candidates: proven by their environment, or kept with the reason why not.

A proposer answers with edits as JSON texts and proves nothing: its texts are untrusted, whoever wrote them. The
environment parses, applies and verifies each in turn, and proves it further where it can (`Proves`); the first that is
proven is the slot's pending task, and later ones are not tried. All others are kept as invalid with the reason, under
an id of their own. Where nothing is proposed, that is kept with the critique.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rla.adaptation.choose import Choice
from rla.adaptation.kinds import NONE, UNREADABLE, edit_kind
from rla.agents.proposer import Proposal
from rla.envs.protocols import Adapts
from rla.envs.views import RejectedEdit
from rla.pipeline.context import StageContext
from rla.store.layout import artifact, held_out_root
from rla.store.pools import read_tasks
from rla.store.record import is_complete
from rla.store.records import Task, content_id

NOT_TRIED = "not tried: an earlier proposal was proven"
Replay = Callable[[Task], Awaitable[str]]  # the reason why a second engine refuses the task; empty: it does not


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One row of a `candidates` shard. An invalid one: its parent's content, its own id, the refused edit; no edit
    where nothing was proposed.
    """

    task: Task
    valid: bool
    reason: str
    parent_accuracy: float
    critique: str

    def row(self) -> dict[str, Any]:
        return {
            **self.task.row(),
            "valid": self.valid,
            "reason": self.reason,
            "parent_accuracy": self.parent_accuracy,
            "critique": self.critique,
        }


async def prove(
    proposals: Iterable[Proposal],
    choice: Choice,
    *,
    editor: Adapts,
    root: Task,
    taken: Collection[str],
    critique: str,
    created: int,
    replay: Replay | None = None,
) -> list[Candidate]:
    """Candidates of one task, one for each proposal, at most one of them valid.

    `root`: the task that the slot began with. `taken`: ids and likenesses of the tasks that exist. `created`: the
    iteration. An edit that is proposed twice is tried once.
    """
    candidates, asked = [], dict[str | None, str]()
    for proposal in proposals:
        asked.setdefault(proposal.edit, proposal.refused)
    proven = False
    for edit, known in asked.items():
        child, reason = None, known or (NOT_TRIED if proven else "")
        if edit is not None and not reason:
            try:
                child = editor.apply(choice.task, edit, root=root, taken=taken, created=created)
                reason = await replay(child) if replay is not None else ""
            except RejectedEdit as refused:
                reason = str(refused) or "refused"
        if child is None or reason:
            child = _refused(choice.task, edit, created)
        candidates.append(
            Candidate(
                task=replace(child, direction=choice.direction.value),
                valid=not reason,
                reason=reason,
                parent_accuracy=choice.accuracy,
                critique=critique,
            )
        )
        proven |= not reason
    return candidates


def kept_to(proposals: Iterable[Proposal], names: Collection[str], *, known: Collection[str]) -> list[Proposal]:
    """The same proposals; edits with other names than `names` are refused. `names` empty: any. `known`: all names that
    edits may have, because what is no edit at all the environment refuses with its own reason.
    """
    return [_within(proposal, names, known) if names else proposal for proposal in proposals]


def _within(proposal: Proposal, names: Collection[str], known: Collection[str]) -> Proposal:
    kind = edit_kind(proposal.edit, known)
    if proposal.refused or kind in (NONE, UNREADABLE) or set(kind.split("+")) <= set(names):
        return proposal
    return proposal._replace(refused=f"adaptation.edits allows {', '.join(names)} alone")


def _refused(parent: Task, edit: str | None, created: int) -> Task:
    """A record of an edit that gave no task, or of none, under an id that no task can have."""
    return replace(
        parent,
        task_id=content_id("refused", parent.task_id, edit or "", str(created)),
        parent_id=parent.task_id,
        depth=parent.depth + 1,
        created=created,
        edit=edit,
        plan_length=None,
    )


class Likening(Protocol):
    """The part of `rla.envs.protocols.Adapts` that compares tasks."""

    def likeness(self, task: Task) -> str: ...


class Taken:
    """The tasks that exist, held-out ones among them: a change that equals one would train on what is evaluated.

    Two tasks are alike if they ask the same in the same state of a scene. That is looked up per scene when it is asked
    for, because a pool of thousands of games is not read through for a few proposals.
    """

    def __init__(self, likening: Likening, tasks: Iterable[Task]) -> None:
        self._likening = likening
        self._ids: set[str] = set()
        self._scenes: dict[str, list[Task]] = {}
        self._alike: dict[str, set[str]] = {}
        self.add(*tasks)

    def add(self, *tasks: Task) -> None:
        for task in tasks:
            if task.task_id in self._ids:
                continue
            self._ids.add(task.task_id)
            self._scenes.setdefault(task.scene, []).append(task)

    def of(self, task: Task) -> set[str]:
        """All ids, and the likenesses of the tasks in the scene of `task`."""
        known = self._alike.setdefault(task.scene, set())
        known.update(self._likening.likeness(other) for other in self._scenes.pop(task.scene, ()))
        return self._ids | known


def held_out_tasks(ctx: StageContext) -> Iterator[Task]:
    """The tasks of all held-out splits of the run whose pools are there.

    They are no input that a shard of candidates names: other held-out tasks leave what was trained as it is.
    """
    splits = ctx.config.tasks.held_out_splits
    for split in splits:
        folder = artifact(held_out_root(ctx.run, splits, split), "test_tasks", 0)
        if is_complete(folder):
            yield from read_tasks(folder)
