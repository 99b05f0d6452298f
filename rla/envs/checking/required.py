"""Checks of what every environment has: its name, its parameters and its tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from rla.config.load import build
from rla.config.params_schema import section_schema
from rla.envs.checking.findings import Check, Subject, other_luck, short
from rla.envs.protocols import Adapts
from rla.envs.registry import REQUIRED
from rla.errors import UserError
from rla.store.records import Status, Task

TEXTS = ("task_id", "env", "split", "slot", "kind", "scene", "instruction", "payload")


def members(subject: Subject) -> Iterator[str]:
    """It has the five members of Env, of their types"""
    env = subject.env
    missing = [name for name in REQUIRED if not hasattr(env, name)]
    if missing:
        yield f"it has no {', '.join(missing)}; add what rla.envs.protocols.Env says"
        return
    if not isinstance(env.name, str) or not env.name:
        yield f"name is {short(env.name)}; make it the name of its entry point"
    if not isinstance(env.Params, type):
        yield f"Params is {short(env.Params)}; make it a frozen dataclass"
    for name in REQUIRED[2:]:
        if not callable(getattr(env, name)):
            yield f"{name} is {short(getattr(env, name))}; make it a method"


def parameters_are_frozen(subject: Subject) -> Iterator[str]:
    """Params is a frozen dataclass with a default for each parameter"""
    params = subject.env.Params
    if not is_dataclass(params):
        yield f"{params.__name__} is no dataclass; write @dataclass(frozen=True, slots=True, kw_only=True) above it"
        return
    if not params.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        yield f"{params.__name__} is not frozen; write @dataclass(frozen=True, slots=True, kw_only=True) above it"
    try:
        params()
    except TypeError as error:
        yield f"{params.__name__}() fails ({error}); give each parameter a default"


def parameters_are_json(subject: Subject) -> Iterator[str]:
    """Parameters can be written as JSON and read back"""
    params = subject.env.Params
    try:
        json.dumps(section_schema(params))
        data = json.loads(json.dumps(asdict(params())))
        again = build(params, data, "params.yaml", "env.own.")
    except (TypeError, ValueError, KeyError, NameError, UserError) as error:
        yield (
            f"{type(error).__name__}: {short(str(error))}; use int, float, str, bool, Literal, "
            "tuple[X, ...], X | None and frozen dataclasses of them"
        )
        return
    if again != params():
        unequal = [e.name for e in fields(params) if getattr(again, e.name) != getattr(params(), e.name)]
        yield f"{', '.join(unequal)} is another value after it was written and read; change its type"


def named_as_installed(subject: Subject) -> Iterator[str]:
    """Its name is the one that it is installed by"""
    if subject.env.name != subject.config.env.name:
        yield f"name is {short(subject.env.name)}, but it is installed as {short(subject.config.env.name)}"


def own_parameters(subject: Subject) -> Iterator[str]:
    """config.env.own is an instance of Params"""
    if not isinstance(subject.config.env.own, subject.env.Params):
        yield f"config.env.own is {short(subject.config.env.own)}; read the config with rla.envs.configured.load_config"


def drawn(subject: Subject, held_out: bool, seed: int | None = None) -> list[Task]:
    names = subject.config.tasks
    split = names.held_out_splits[0] if held_out else names.train_split
    return subject.env.tasks(subject.config, split=split, seed=subject.seed if seed is None else seed)


def tasks_are_there(subject: Subject) -> Iterator[str]:
    """tasks gives a list of tasks for training and for the held-out split, and no more than are asked for"""
    for held_out in (False, True):
        found = drawn(subject, held_out)
        split = subject.config.tasks.held_out_splits[0] if held_out else subject.config.tasks.train_split
        if not isinstance(found, list) or not found:
            yield f"tasks(split={split!r}) gives {short(found)}; return a list with at least one task"
            return
        wrong = next((task for task in found if not isinstance(task, Task)), None)
        if wrong is not None:
            yield f"tasks(split={split!r}) holds {short(wrong)}; its items must be rla.store.records.Task"
        asked = subject.config.tasks.count(split)
        if len(found) > asked:
            yield f"tasks(split={split!r}) gives {len(found)} tasks; config.tasks.count(split) asks for {asked} at most"


def tasks_are_deterministic(subject: Subject) -> Iterator[str]:
    """Equal arguments give equal tasks"""
    first = drawn(subject, False)
    with other_luck(1):
        again = drawn(subject, False)
    if first != again:
        yield "tasks gave other tasks when it was called again; draw from random.Random(seed) alone"


def tasks_are_well_formed(subject: Subject) -> Iterator[str]:
    """Tasks have all columns: texts, a JSON payload, slot equal to task_id, env equal to name"""
    for held_out in (False, True):
        split = subject.config.tasks.held_out_splits[0] if held_out else subject.config.tasks.train_split
        for task in drawn(subject, held_out):
            yield from columns_of_root(task, name=subject.env.name, split=split)


def columns_of_root(task: Task, *, name: str, split: str) -> Iterator[str]:
    """Complaints about a task that was not changed."""
    yield from wrong_texts(task)
    wanted: dict[str, Any] = {"env": name, "split": split, "slot": task.task_id, "status": Status.ACTIVE.value}
    wanted |= {"depth": 0, "created": 0, "parent_id": None, "direction": None, "edit": None}
    for column, value in wanted.items():
        if getattr(task, column) != value:
            yield f"task {short(task.task_id)} has {column} {short(getattr(task, column))}; it must be {value!r}"


def wrong_texts(task: Task) -> Iterator[str]:
    """Complaints about columns of a task that cannot be written as text, and about its payload."""
    for column in TEXTS:
        text = getattr(task, column)
        if not isinstance(text, str):
            yield f"{column} of a task is {short(text)}; it must be a text"
            return
        if not text.isprintable() and column == "task_id":
            yield f"task_id is {short(text)}; use rla.store.records.content_id"
        if not encodable(text):
            yield f"{column} of a task holds half of a surrogate pair, which no file can hold: {short(text)}"
    if not task.task_id or not task.instruction:
        yield f"task {short(task.task_id)} has no task_id or no instruction"
    try:
        json.loads(task.payload)
    except (ValueError, RecursionError):
        yield f"payload of task {short(task.task_id)} is no JSON text: {short(task.payload)}; use json.dumps"
    if task.plan_length is not None and type(task.plan_length) is not int:
        yield f"plan_length of task {short(task.task_id)} is {short(task.plan_length)}; it must be a number or None"


def encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def ids_are_of_content(subject: Subject) -> Iterator[str]:
    """No two tasks share an id, and equal ids have equal content whatever the seed"""
    seen: dict[str, Task] = {}
    for task in drawn(subject, False):
        if task.task_id in seen:
            yield f"task_id {task.task_id} is there twice; leave one out, or let all that differs enter content_id"
        seen[task.task_id] = task
    for task in drawn(subject, False, seed=subject.seed + 1):
        other = seen.get(task.task_id, task)
        if (other.payload, other.instruction) != (task.payload, task.instruction):
            yield f"task_id {task.task_id} means another task with another seed; use content_id of its content"


def splits_are_disjoint(subject: Subject) -> Iterator[str]:
    """No task is in two splits"""
    train, test = drawn(subject, False), drawn(subject, True)
    for what in ("task_id", "payload"):
        both = {getattr(task, what) for task in train} & {getattr(task, what) for task in test}
        if both:
            yield f"{len(both)} held-out tasks have a {what} of training; draw the splits from disjoint ranges"
    if isinstance(subject.env, Adapts):
        both = set(map(subject.env.likeness, train)) & set(map(subject.env.likeness, test))
        if both:
            yield f"{len(both)} held-out tasks are like one of training (likeness); draw from disjoint ranges"


PARAMETERS: tuple[Check, ...] = (members, parameters_are_frozen, parameters_are_json)
TASKS: tuple[Check, ...] = (
    named_as_installed,
    own_parameters,
    tasks_are_there,
    tasks_are_deterministic,
    tasks_are_well_formed,
    ids_are_of_content,
    splits_are_disjoint,
)
