"""A programming problem, and its encoding in a task row.

A problem is either of kind `stdio` (a program reads stdin and prints) or `function` (a program defines a function to
call). All tests of a problem are of its kind, and are ground truth. The payload of a task row is the problem as a JSON
object (`coding/problem.schema.json`). The task's id is a digest of everything that decides whether a program is right,
so not of the reference solution, the difficulty and the source.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from rla.errors import UserError
from rla.store.records import Status, Task, content_id
from rla_programs.coding.data.checkers import Checker, CheckerKind, Json
from rla_programs.execution.nesting import levels, too_deep

ENV = "coding"
SCHEMA = Path(__file__).parents[1] / "problem.schema.json"
STDIO = "stdio"
FUNCTION = "function"
LONGEST_S, LARGEST_MB = 3600.0, 1 << 20
MOST_DIGITS = 20_000  # of an integer that is expected or returned; Python's own limit is 4,300
TOO_LONG = f"an integer of more than {MOST_DIGITS} digits"
sys.set_int_max_str_digits(MOST_DIGITS)
SOURCES = ("solution", "difficulty", "source")  # fields that do not affect whether a program is right


class InvalidProblem(ValueError):
    """An impossible problem: the message is the reason and quotes nothing of the problem."""


@dataclass(frozen=True, slots=True)
class StdioTest:
    """A program's stdin and its expected output; both may be empty."""

    input: str
    output: str


@dataclass(frozen=True, slots=True)
class CallTest:
    """Arguments of the problem's function and its expected return value: JSON values."""

    arguments: tuple[Json, ...]
    expected: Json


Test = StdioTest | CallTest


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A statement and its ground truth. `function` is the name of the function to call, empty for stdio.

    `prelude` is code that the data set's own runner puts in front of every program, such as imports of `List`.
    `starter` is code that the statement shows, such as a signature; if it has a class `Solution`, the function is a
    method of it. `solution` is a supposedly right program, which has not been run yet unless the problem is one of
    ours. `difficulty` goes from 1 to 5. Raises `InvalidProblem`.
    """

    statement: str
    tests: tuple[Test, ...]
    checker: Checker = field(default_factory=Checker)
    function: str | None = None
    starter: str = ""
    prelude: str = ""
    time_limit_s: float = 4.0
    memory_limit_mb: int = 256
    solution: str | None = None
    difficulty: int | None = None
    source: str = "unknown"

    def __post_init__(self) -> None:
        _check(self)

    @property
    def kind(self) -> str:
        return STDIO if self.function is None else FUNCTION


def _check(problem: Problem) -> None:
    """Raises `InvalidProblem` for violations that the schema cannot express."""
    if not problem.statement.strip():
        raise InvalidProblem("no statement")
    if not problem.tests:
        raise InvalidProblem("no tests")
    wanted = StdioTest if problem.function is None else CallTest
    if not all(isinstance(test, wanted) for test in problem.tests):
        raise InvalidProblem("tests of another kind than the problem's")
    if problem.function is not None and not (problem.function.isidentifier() and problem.function.isascii()):
        raise InvalidProblem("the function's name is not an identifier")
    kinds = {CheckerKind.VALUES} if problem.function else {CheckerKind.TOKENS, CheckerKind.FLOATS, CheckerKind.EXACT}
    if problem.checker.kind not in kinds | {CheckerKind.PROGRAM}:
        raise InvalidProblem(f"the checker {problem.checker.kind.value} does not fit {problem.kind} tests")
    if (problem.checker.program is not None) != (problem.checker.kind is CheckerKind.PROGRAM):
        raise InvalidProblem("a checker has a source if, and only if, it is a program")
    if not all(0 <= tolerance < math.inf for tolerance in (problem.checker.absolute, problem.checker.relative)):
        raise InvalidProblem("a tolerance is not a number from 0")
    if not (0 < problem.time_limit_s <= LONGEST_S and 0 < problem.memory_limit_mb <= LARGEST_MB):
        raise InvalidProblem("a limit is not a positive number, or more than an hour or a tebibyte")
    try:
        text = json.dumps(_fields(problem), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidProblem("a value is not JSON or a text not Unicode") from error


def json_value(value: Any, *, argument: bool = False) -> Json:
    """The value after a round trip through JSON: tuples become lists, keys become strings. Raises `InvalidProblem`,
    also for values nested too deeply (`nesting`), and for an `argument` with keys that are not strings, because it
    would change.
    """
    try:
        found = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidProblem(TOO_LONG if "digits" in str(error) else "a value is not JSON") from error
    if too_deep(found):
        raise InvalidProblem("a value is nested too deeply")
    texts = (isinstance(key, str) for level in levels(value) for one in level if isinstance(one, dict) for key in one)
    if argument and not all(texts):
        raise InvalidProblem("an argument has keys that are not strings")
    return found


def problem_payload(problem: Problem) -> str:
    """The JSON text that `problem_of` reads back."""
    return json.dumps(_fields(problem), sort_keys=True, allow_nan=False)


def problem_of(payload: str) -> Problem:
    """The problem in a task's payload. Raises `UserError` if it is not a coding payload."""
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise UserError("the task's payload is not JSON; make or import the tasks again") from error
    flaw = next(iter(_validator().iter_errors(fields)), None)
    if flaw is not None:
        raise UserError(
            f"the task's payload is not a coding problem ({flaw.json_path}); make or import the tasks again"
        )
    try:
        return _problem(fields)
    except InvalidProblem as error:
        raise UserError(
            f"the task's payload is not a coding problem: {error}; make or import the tasks again"
        ) from error


def task_from_problem(problem: Problem, *, split: str, **columns: Any) -> Task:
    """The task row of `problem`; `columns` are further fields of `Task`. Without `slot` it is its own root."""
    task_id = problem_digest(problem)
    columns.setdefault("slot", task_id)
    columns.setdefault("status", Status.ACTIVE.value)
    return Task(
        task_id=task_id,
        env=ENV,
        split=split,
        kind=problem.kind,
        scene=problem.source.partition("/")[0],  # tasks of one scene are compared when one of them changes
        instruction=problem.statement,
        payload=problem_payload(problem),
        **columns,
    )


def problem_digest(problem: Problem) -> str:
    """Identity of a problem: statement, tests, checker, limits and the function's name."""
    fields = {name: value for name, value in _fields(problem).items() if name not in SOURCES}
    return content_id(ENV, json.dumps(fields, sort_keys=True))


def question(problem: Problem) -> str:
    """The statement as a policy and a test writer see it, with the starter code if there is any."""
    statement = problem.statement.strip()
    return f"{statement}\n\n{problem.starter.strip()}" if problem.starter.strip() else statement


def given(test: Test) -> Json:
    """The input of a program, `input` for a checker: stdin, or the list of arguments."""
    return test.input if isinstance(test, StdioTest) else list(test.arguments)


def wanted(test: Test) -> Json:
    """The expected output or value, `expected` for a checker."""
    return test.output if isinstance(test, StdioTest) else test.expected


def _fields(problem: Problem) -> dict[str, Any]:
    fields = {name: getattr(problem, name) for name in Problem.__dataclass_fields__ if name not in ("tests", "checker")}
    checker = asdict(problem.checker) | {"kind": problem.checker.kind.value}
    if not problem.prelude:
        del fields["prelude"]  # most problems have none, and their digests do not depend on it
    return fields | {"checker": checker, "tests": [_test_fields(test) for test in problem.tests]}


def _test_fields(test: Test) -> dict[str, Json]:
    if isinstance(test, StdioTest):
        return {"input": test.input, "output": test.output}
    return {"arguments": list(test.arguments), "expected": test.expected}


def _problem(fields: Mapping[str, Any]) -> Problem:
    tests = [
        CallTest(tuple(test["arguments"]), test["expected"])
        if "arguments" in test
        else StdioTest(test["input"], test["output"])
        for test in fields["tests"]
    ]
    checker = Checker(**fields["checker"] | {"kind": CheckerKind(fields["checker"]["kind"])})
    return Problem(**{**fields, "tests": tuple(tests), "checker": checker})


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(json.loads(SCHEMA.read_text()))
