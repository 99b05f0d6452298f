"""From a task that should change to candidates: proven by their environment, or kept with the reason why not.

A proposer answers with edits as JSON texts and proves nothing: its texts are untrusted, whoever wrote them. The
environment parses, applies and verifies each in turn, and proves it further where it can (`Proves`); the first that is
proven is the slot's pending task, and later ones are not tried. All others are kept as invalid with the reason, under
an id of their own. Where nothing is proposed, that is kept with the critique.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from rla.adaptation.choose import Choice
from rla.adaptation.kinds import NONE, UNREADABLE, edit_kind
from rla.agents.proposer import Proposal
from rla.envs.protocols import Adapts
from rla.envs.views import RejectedEdit
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
