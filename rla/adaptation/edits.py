"""Counts of adaptation by direction and by kind of edit.

The kind of an edit is the names of what it changes, as the environment calls them, in alphabetical order and
joined by "+": `goal`, `move+remove`. The text is untrusted: whatever is not such an object is `unreadable`.
Where nothing was proposed it is `none`.

From a task that should change to candidates: proven by their environment, or kept with the reason why not.

A proposer answers with edits as JSON texts and proves nothing: its texts are untrusted, whoever wrote them. The
environment parses, applies and verifies each in turn, and proves it further where it can (`Proves`); the first that is
proven is the slot's pending task, and later ones are not tried. All others are kept as invalid with the reason, under
an id of their own. Where nothing is proposed, that is kept with the critique.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from rla.agents.proposer import Proposal
from rla.envs.protocols import Adapts
from rla.envs.views import RejectedEdit
from rla.pipeline.context import StageContext
from rla.store.layout import artifact, held_out_root
from rla.store.pools import read_tasks
from rla.store.records import Direction, Task, content_id
from rla.store.slices import is_complete

UNREADABLE = "unreadable"
NONE = "none"
Tally = dict[str, dict[str, dict[str, int]]]  # direction -> kind of edit -> name -> count


class Counted(NamedTuple):
    """One proposal, and what it counts as: {"proposed": True, "valid": False}."""

    direction: str | None
    edit: str | None
    marks: Mapping[str, bool]


def edit_kind(edit: str | None, fields: Collection[str]) -> str:
    """The kind of an edit, from its JSON text; `fields`: the names that edits of its environment may have."""
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
    """How many entries have each mark, by direction and kind; kinds that did not occur are left out."""
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
