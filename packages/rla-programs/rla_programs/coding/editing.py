"""Changed problems: edits as JSON texts, drawn by rule or written by a language model, and the tasks they result in.

    {"relative": {"template", "parameters", "seed"}}               a built-in problem one level harder or easier
    {"rewrite": {"statement", "solution", "tests", "inputs"}}      a problem that a language model wrote

An edit is untrusted: it is validated against `coding/edit.schema.json`, nothing of it runs here, and the outputs in a
rewritten problem's tests are claims, which `proving` checks.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from rla.envs.authoring import is_text
from rla.envs.chat_prompts import single_spaced
from rla.envs.protocols import RejectedEdit
from rla.store.records import Direction, Status, Task, content_id
from rla_programs.coding.builtin.recall import Entry, entry_of, relatives
from rla_programs.coding.data.checkers import Checker, CheckerKind
from rla_programs.coding.data.problems import InvalidProblem, Problem, Test, given, problem_of, task_from_problem
from rla_programs.coding.writing import LONGEST_TEXT, Written, read_test

RELATIVE, REWRITE = "relative", "rewrite"
REWRITTEN = "rewritten"  # the source of a problem that a language model wrote
LONGEST_EDIT = 200_000
FURTHER = 4  # inputs that differ from those of the tests


def drawn_edits(task: Task, *, direction: str, seed: int, count: int) -> list[str]:
    """Up to `count` relatives of a built-in problem, in random order; none for other problems."""
    entry = entry_of(problem_of(task.payload))
    if entry is None:
        return []
    rng = random.Random(seed)
    near = relatives(entry, step=1 if direction == Direction.HARDER else -1)
    chosen = rng.sample(near, min(count, len(near)))
    return [json.dumps({RELATIVE: named(other, seed=rng.getrandbits(31))}, sort_keys=True) for other in chosen]


def named(entry: Entry, *, seed: int) -> dict[str, Any]:
    """The fields of a relative."""
    return {"template": entry.template.name, "parameters": list(entry.parameters), "seed": seed}


def child_of(task: Task, edit: str, *, taken: Collection[str], created: int) -> Task:
    """The pending task that an edit makes of `task`, well formed and new. Raises RejectedEdit."""
    parent = problem_of(task.payload)
    fields = _read_edit(edit)
    problem = _relative(parent, fields[RELATIVE]) if RELATIVE in fields else _rewritten(parent, fields[REWRITE])
    child = task_from_problem(
        problem,
        split=task.split,
        slot=task.slot,
        status=Status.PENDING.value,
        parent_id=task.task_id,
        depth=task.depth + 1,
        created=created,
        edit=json.dumps(fields, sort_keys=True),
    )
    if child.task_id in taken or problem_likeness(child) in taken:
        raise RejectedEdit("equal to a task that is in the pool, is pending or was judged for this slot")
    return replace(child, scene=task.scene)  # so that later tasks are compared with it


def _read_edit(edit: str) -> dict[str, Any]:
    """The fields of an edit. Raises RejectedEdit."""
    try:
        fields = json.loads(edit) if len(edit) <= LONGEST_EDIT else None
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise RejectedEdit("the edit is not a JSON object")
    flaw = next(iter(_validator().iter_errors(fields)), None)
    if flaw is not None:
        raise RejectedEdit(f"the edit does not fit its schema at {flaw.json_path[:80]}")
    if not all(is_text(text, longest=LONGEST_EDIT) for text in _texts(fields)):
        raise RejectedEdit("the edit holds what is no text")
    return fields


def problem_likeness(task: Task) -> str:
    """Equal for tasks that ask the same, whatever their tests."""
    return content_id("coding", task.kind, single_spaced(task.instruction).casefold())


def further_inputs(problem: Problem, fields: dict[str, Any]) -> list[Test]:
    """Tests with the further inputs of a rewrite; their expected outputs have no meaning. Raises RejectedEdit, also if
    fewer than FURTHER of them are new, because programs already agree on the inputs of the tests.
    """
    seen = {repr(given(test)) for test in problem.tests}
    found = {repr(given(test)): test for test in (_test(problem, text, "0") for text in fields[REWRITE]["inputs"])}
    further = [test for name, test in found.items() if name not in seen]
    if len(further) < FURTHER:
        raise RejectedEdit("too few further inputs are other than those of the tests")
    return further


def _texts(value: Any) -> Iterator[str]:
    """All strings in an edit, whose depth the schema limits."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _relative(parent: Problem, fields: dict[str, Any]) -> Problem:
    entry = entry_of(parent)
    near = [] if entry is None else [*relatives(entry, step=1), *relatives(entry, step=-1)]
    wanted = (fields["template"], fields["parameters"])
    for other in near:
        if (other.template.name, json.loads(json.dumps(other.parameters))) == wanted:
            return other.problem(seed=fields["seed"], tests=len(parent.tests))
    raise RejectedEdit("no built-in problem one level away is of this template and these parameters")


def _rewritten(parent: Problem, fields: dict[str, Any]) -> Problem:
    own = Checker(kind=CheckerKind.VALUES if parent.function else CheckerKind.TOKENS)
    checker = own if parent.checker.kind is CheckerKind.PROGRAM else parent.checker
    bare = replace(parent, checker=checker)
    tests = tuple(_test(bare, test["input"], test["output"]) for test in fields["tests"])
    if len({repr(test) for test in tests}) < len(tests):
        raise RejectedEdit("a test is there twice")
    try:
        return replace(
            bare,
            statement=fields["statement"].strip(),
            tests=tests,
            starter="",
            solution=fields["solution"].strip("\n"),
            difficulty=None,
            source=REWRITTEN,
        )
    except InvalidProblem as error:
        raise RejectedEdit(f"not a problem: {error}") from None


def _test(problem: Problem, asked: str, output: str) -> Test:
    texts = Written(asked.strip("\n"), output.strip("\n"))
    test = read_test(problem, texts) if all(is_text(text, longest=LONGEST_TEXT) for text in texts) else None
    if test is None:
        raise RejectedEdit("a test's input or output cannot be read")
    return test


@cache
def edit_schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("edit.schema.json").read_text())
    return schema


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(edit_schema())
