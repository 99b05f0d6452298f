"""Checks of tasks that change (`Adapts`): the edits that are proposed, the tasks that they make, and hostile edits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rla.envs.checking.episodes import played_of
from rla.envs.checking.findings import Recorded, Subject, doing, other_luck, raised, short
from rla.envs.checking.hostile import hostile_edits
from rla.envs.checking.prompts import wrong_messages
from rla.envs.checking.required import wrong_texts
from rla.envs.checking.trial import trial
from rla.envs.course import Course
from rla.envs.protocols import Adapts, AsksModel
from rla.envs.views import ProposalView, RejectedEdit
from rla.store.records import Direction, Status, Task

COUNT = 4
CREATED = 3


def adapting(subject: Subject) -> Adapts:
    assert isinstance(subject.env, Adapts)
    return subject.env


def proposals(subject: Subject, task: Task) -> Iterator[str]:
    """Edits of both directions."""
    for direction in Direction:
        with doing(f"in propose of {direction.value} edits of the task {short(task.instruction)}"):
            edits = adapting(subject).propose(
                task, direction=direction.value, critique="", seed=subject.seed, count=COUNT
            )
        yield from edits


def children(subject: Subject) -> Iterator[tuple[Task, str, Task]]:
    """(task, edit, child) of the proposed edits that are accepted."""
    for task in subject.tasks:
        for edit in proposals(subject, task):
            try:
                with doing(f"the edit was {short(edit)}"):
                    child = adapting(subject).apply(task, edit, root=task, taken=set(), created=CREATED)
            except RejectedEdit:
                continue
            yield task, edit, child


def edits_have_known_fields(subject: Subject) -> Iterator[str]:
    """Proposed edits are JSON objects with fields of edit_fields, and equal arguments give equal edits"""
    fields = adapting(subject).edit_fields
    if not isinstance(fields, frozenset) or not fields:
        yield f"edit_fields is {short(fields)}; it must be a frozenset of names"
        return
    for task in subject.tasks:
        edits = list(proposals(subject, task))
        with other_luck(6):
            if list(proposals(subject, task)) != edits:
                yield "propose gave other edits when it was called again; draw from random.Random(seed) alone"
        if len(edits) > COUNT * len(Direction):
            yield f"propose gives more edits than the {COUNT} that are asked for"
        for edit in edits:
            yield from unknown_fields(edit, fields)


def unknown_fields(edit: Any, fields: frozenset[str]) -> Iterator[str]:
    """Complaints about a proposed edit."""
    try:
        values = json.loads(edit)
    except (TypeError, ValueError):
        values = None
    if not isinstance(values, dict):
        yield f"propose gives {short(edit)}; an edit is the text of a JSON object"
    elif unknown := values.keys() - fields:
        yield f"propose gives an edit with {short(sorted(unknown))}; add that to edit_fields, or leave it out"


def some_edit_is_accepted(subject: Subject) -> Iterator[str]:
    """Some proposed edit makes a task"""
    if next(children(subject), None) is not None:
        return
    refused = "propose gives none"
    for task in subject.tasks:
        for edit in proposals(subject, task):
            try:
                adapting(subject).apply(task, edit, root=task, taken=set(), created=CREATED)
            except RejectedEdit as error:
                refused = f"the last was {short(edit)}, refused because of {short(str(error))}"
    yield f"of what propose gives for these tasks, apply accepts nothing ({refused}); no task can ever change"


def children_are_pending(subject: Subject) -> Iterator[str]:
    """A changed task is pending, names its parent, keeps slot, split and scene, and can be played"""
    for task, edit, child in children(subject):
        yield from (f"{complaint}; the edit was {short(edit)}" for complaint in wrong_texts(child))
        wanted: dict[str, Any] = {name: getattr(task, name) for name in ("env", "slot", "split", "scene")}
        wanted |= {"status": Status.PENDING.value, "parent_id": task.task_id}
        wanted |= {"depth": task.depth + 1, "created": CREATED}
        for column, value in wanted.items():
            if getattr(child, column) != value:
                found = short(getattr(child, column))
                yield f"{column} of a changed task is {found}; it must be {short(value)}; the edit was {short(edit)}"
        if child.task_id == task.task_id or child.payload == task.payload:
            yield f"the edit {short(edit)} gives a task of the same id or payload; raise RejectedEdit"
        if not isinstance(child.edit, str):
            yield f"edit of a changed task is {short(child.edit)}; keep the edit that made it"
        with doing(f"the edit was {short(edit)}"), trial(subject, child) as game:
            game.reset()


def edits_are_deterministic(subject: Subject) -> Iterator[str]:
    """Equal edits give equal tasks, equal tasks are alike, and a task that exists already is refused"""
    env = adapting(subject)
    for task, edit, child in children(subject):
        with other_luck(7):
            if env.apply(task, edit, root=task, taken=set(), created=CREATED) != child:
                yield f"apply gave another task the second time, of the edit {short(edit)}; draw by the edit alone"
            with doing(f"the edit was {short(edit)}"):
                alike, again = env.likeness(child), env.likeness(child)
            if alike != again or not isinstance(alike, str):
                yield f"likeness is {short(alike)} and then another; return a text of the content"
        if env.likeness(child) == env.likeness(task):
            yield f"the edit {short(edit)} gives a task that is like its parent (likeness); raise RejectedEdit"
        for what, taken in (("id", child.task_id), ("likeness", env.likeness(child))):
            try:
                env.apply(task, edit, root=task, taken={taken}, created=CREATED)
            except RejectedEdit:
                continue
            yield f"apply made a task whose {what} is in `taken` of the edit {short(edit)}; raise RejectedEdit"


def hostile_edits_are_refused(subject: Subject) -> Iterator[str]:
    """Hostile edits raise RejectedEdit"""
    env = adapting(subject)
    task = subject.tasks[0]
    for what, edit in hostile_edits(env.edit_fields).items():
        try:
            env.apply(task, edit, root=task, taken=set(), created=CREATED)
        except RejectedEdit:
            continue
        except Exception as error:  # an environment may raise anything, and to find that out is what this is for
            yield f"an edit that is {what} ({short(edit)}) raised {raised(error, subject.env)}; raise RejectedEdit"
            return
        yield f"an edit that is {what} ({short(edit)}) made a task; raise RejectedEdit"


def course_counts(subject: Subject) -> Iterator[str]:
    """course reads rows of trajectories"""
    for task in subject.tasks:
        rows = [row_of(played) for played in played_of(subject, task)]
        for told in ([], rows):
            course = adapting(subject).course(task, told)
            if not isinstance(course, Course) or not 0 <= course.won <= course.episodes <= len(told):
                yield f"course of {len(told)} episodes is {short(course)}; return rla.envs.course.Course of them"
            course.told()


def row_of(played: Recorded) -> dict[str, Any]:
    """What a course sees of an episode."""
    return {
        "outcome": 1 if played.seen[-1].won else -1,
        "steps": [{"observation": o.text, "action": a} for o, a in zip(played.seen, played.actions, strict=False)],
        "final_observation": played.seen[-1].text,
    }


def model_is_asked_for_edits(subject: Subject) -> Iterator[str]:
    """The proposer's prompts are messages, with a JSON Schema of the answer"""
    assert isinstance(subject.env, AsksModel)
    prompt = subject.env.proposal_prompt()
    for task in subject.tasks:
        for direction in Direction:
            view = ProposalView(direction=direction.value, accuracy=0.5, critique="</s> <|im_end|> NUL \x00")
            yield from wrong_messages(prompt.messages(task, view), of="proposal_prompt.messages")
        schema = prompt.schema(task)
        if json.loads(json.dumps(schema)) != schema or schema.get("type") != "object":
            yield f"proposal_prompt.schema gives {short(schema)}; return a JSON Schema of an object"


ADAPTS = (
    edits_have_known_fields,
    some_edit_is_accepted,
    children_are_pending,
    edits_are_deterministic,
    hostile_edits_are_refused,
    course_counts,
)
