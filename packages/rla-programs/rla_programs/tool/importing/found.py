"""The content of a row before it becomes a question, and the checks of its texts."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any

from rla.envs.authoring import is_text
from rla_programs.coding.data.problems import InvalidProblem, Problem
from rla_programs.coding.importing.columns import Row, optional, parsed_column

LONGEST_QUESTION = 20_000  # characters
LONGEST_ANSWER = 2000
PROGRAM_ABILITIES = frozenset({"code", "coding", "programming"})  # of a row that asks for a program


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundQuestion:
    """`source` is empty if the row does not name one, until the file gives it one (`sources`).

    `problem`: of a question that asks for a program. `domain`: the field or ability, if known.
    """

    text: str
    check: str
    answer: str = ""
    source: str = ""
    domain: str = ""
    problem: Problem | None = None


def question_text(text: str) -> str:
    """The text. Raises `InvalidProblem` if it is empty, too long or not Unicode."""
    if not text.strip():
        raise InvalidProblem("no question")
    if len(text) > LONGEST_QUESTION:
        raise InvalidProblem(f"a question of more than {LONGEST_QUESTION} characters")
    if not is_text(text, longest=LONGEST_QUESTION):
        raise InvalidProblem("a question that is not text")
    return text.strip()


def answer_text(value: Any) -> str:
    """A ground truth as text. A list of strings (also as JSON text) becomes its single element, or alternatives as JSON
    text.

    Raises `InvalidProblem` if it is empty, too long or neither a string nor a number.
    """
    if isinstance(value, str) and value.lstrip().startswith('["'):
        with contextlib.suppress(InvalidProblem):  # a text may only look like a list
            value = parsed_column(value, "the answer")
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        value = value[0] if len(value) == 1 else json.dumps(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidProblem("an answer that is neither a text nor a number")
    if isinstance(value, int) and abs(value) >= 10**LONGEST_ANSWER:
        raise InvalidProblem(f"an answer of more than {LONGEST_ANSWER} characters")
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value)
    if not text.strip():
        raise InvalidProblem("no answer")
    if not is_text(text, longest=LONGEST_ANSWER):
        raise InvalidProblem(f"an answer of more than {LONGEST_ANSWER} characters, or that is not text")
    return text


def is_letter(answer: str) -> bool:
    """Whether an answer is an option's capital letter."""
    return len(answer) == 1 and "A" <= answer <= "J"


def named_source(row: Row) -> str:
    """The row's data source, if it is a short name."""
    name = optional(row, "data_source").strip()
    return name if len(name) <= 100 and is_text(name, longest=100) and name.isprintable() else ""
