"""A question as the payload of a task: its text, and how an answer to it is checked.

| check | `answer` is | an answer is right if |
|---|---|---|
| `math` | a value in LaTeX or plain text | both are the same mathematics (`mathematics`) |
| `exact` | a text | both are the same characters |
| `number` | a number | both are the same number, however it is written |
| `choice` | a letter | it is this letter, its option's text, or both |
| `family` | the family's own answer | the verifier of the family accepts it (`family`) |
| `code` | empty | the program passes the tests of `problem` |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from rla.envs.authoring import root_task
from rla.errors import UserError
from rla.store.records import Task

NAME = "tool"
IMPORTED = "imported"  # the scene of questions without a family
Check = Literal["math", "exact", "number", "choice", "family", "code"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`text` is the question for the policy. `source`: the data source or family by which figures are grouped.

    `family`: the recipe of a generated question (name, levels, seed, index). `problem`: a coding problem in the layout
    of `rla_programs.coding.data.problems`, as JSON text. `domain`: the field, if known.
    """

    text: str
    check: Check
    answer: str
    source: str
    family: Mapping[str, Any] | None = None
    problem: str | None = None
    domain: str = ""


def question_of(task: Task) -> Question:
    """The question in a task's payload. Raises UserError for an invalid payload."""
    try:
        found = Question(**json.loads(task.payload))
    except (ValueError, TypeError, RecursionError):
        found = None
    if found is None or not isinstance(found.text, str) or found.check not in get_args(Check):
        raise UserError(f"task {task.task_id}: its payload is not a question of {NAME}; make the tasks again")
    return found


def task_of_question(question: Question, *, split: str) -> Task:
    """A change is compared with the questions of its task's scene (`rla.adaptation.candidates`). All questions without
    a family share one scene, because a rewritten one may equal a question of any source.
    """
    generated = question.family is not None or question.problem is not None
    return root_task(
        env=NAME,
        split=split,
        instruction=question.text,
        content=asdict(question),
        kind=question.source,
        scene=question.source if generated else IMPORTED,
    )
