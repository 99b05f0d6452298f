"""From proposed edits of a task to candidates: proven by the environment, or kept with the reason why not.

A proposer answers with edits as JSON texts, which are untrusted, whoever wrote them. The environment parses, applies
and verifies each in turn, and proves it further if it can (`Proves`). The first proven edit is the slot's pending task,
and later ones are not tried. All others are kept as invalid, with the reason, under an id of their own; if nothing was
proposed, a row holds the critique.

The kind of an edit is the names of the fields that it changes, in alphabetical order and joined by "+": `goal`,
`move+remove`. A text that is not such an object is `unreadable`; without a proposal the kind is `none`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rla.agents.proposer import Proposal
from rla.envs.protocols import Adapts
from rla.envs.views import RejectedEdit
from rla.pipeline.context import StageContext
from rla.store.layout import artifact, held_out_root
from rla.store.reading import read_tasks
from rla.store.record import is_complete
from rla.store.records import Direction, Task, content_id

UNREADABLE = "unreadable"
NONE = "none"
Tally = dict[str, dict[str, dict[str, int]]]  # direction -> kind of edit -> name -> count


class Counted(NamedTuple):
    """One proposal, and what it counts as: {"proposed": True, "valid": False}."""

    direction: str | None
    edit: str | None
    marks: Mapping[str, bool]


def edit_kind(edit: str | None, fields: Collection[str]) -> str:
    """The kind of an edit, from its JSON text. `fields`: the names that an edit in this environment may have."""
    if edit is None:
        return NONE
    try:
        read = json.loads(edit)
    except (ValueError, RecursionError):
        return UNREADABLE
    if not isinstance(read, dict) or not read or not set(read) <= set(fields):
        return UNREADABLE
    return "+".join(sorted(read))


def edit_tally(entries: Iterable[Counted], *, fields: Collection[str]) -> Tally:
    """Number of entries with each mark, by direction and kind; kinds without entries are left out."""
    counts: Tally = {}
    for entry in entries:
        cell = counts.setdefault(str(entry.direction), {}).setdefault(edit_kind(entry.edit, fields), {})
        for name, marked in entry.marks.items():
            cell[name] = cell.get(name, 0) + marked
    return {direction: dict(sorted(kinds.items())) for direction, kinds in sorted(counts.items())}


def added(tallies: Iterable[Tally]) -> Tally:
    """The sum of several tallies."""
    total: Tally = {}
    for found in tallies:
        for direction, kinds in found.items():
            for kind, counts in kinds.items():
                cell = total.setdefault(direction, {}).setdefault(kind, {})
                for name, count in counts.items():
                    cell[name] = cell.get(name, 0) + count
    return {direction: dict(sorted(kinds.items())) for direction, kinds in sorted(total.items())}


NOT_TRIED = "not tried: an earlier proposal was proven"
Replay = Callable[[Task], Awaitable[str]]  # the reason why a second engine refuses the task; empty: it does not


class Choice(NamedTuple):
    """A task to change, the direction, and the accuracy that says so."""

    task: Task
    direction: Direction
    accuracy: float


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
    """The proposals; edits with other names than `names` (empty: any) are refused.

    `known`: all names that edits may have. An unreadable edit is left to the environment, which gives its own reason.
    """
    found = []
    for proposal in proposals:
        kind = edit_kind(proposal.edit, known)
        allowed = not names or kind in (NONE, UNREADABLE) or set(kind.split("+")) <= set(names)
        refused = proposal.refused or ("" if allowed else f"adaptation.edits allows {', '.join(names)} alone")
        found.append(proposal._replace(refused=refused))
    return found


def _refused(parent: Task, edit: str | None, created: int) -> Task:
    """A record of a refused edit, or of no edit at all, under an id that no task can have."""
    return replace(
        parent,
        task_id=content_id("refused", parent.task_id, edit or "", str(created)),
        parent_id=parent.task_id,
        depth=parent.depth + 1,
        created=created,
        edit=edit,
        plan_length=None,
    )


class Taken:
    """The tasks that exist, held-out ones included: a changed task must not equal a task of the evaluation.

    Two tasks are alike if they ask the same in the same state of a scene. Likenesses are computed scene by scene, on
    demand, because reading a pool of thousands of games for a few proposals would take long.
    """

    def __init__(self, editor: Adapts, tasks: Iterable[Task]) -> None:
        self._editor = editor
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
        known.update(self._editor.likeness(other) for other in self._scenes.pop(task.scene, ()))
        return self._ids | known


def held_out_tasks(ctx: StageContext) -> Iterator[Task]:
    """The tasks of all held-out splits of the run that have a pool.

    They are not among the inputs that a shard of candidates names, since other held-out tasks would not change what was
    trained.
    """
    splits = ctx.config.tasks.test_splits
    for split in splits:
        folder = artifact(held_out_root(ctx.run, splits, split), "test_tasks", 0)
        if is_complete(folder):
            yield from read_tasks(folder)
