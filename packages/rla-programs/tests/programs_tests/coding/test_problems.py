"""Problems, their payload, and what is no problem."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from rla_programs.coding.data.checkers import Checker, CheckerKind
from rla_programs.coding.data.problems import (
    CallTest,
    InvalidProblem,
    Problem,
    StdioTest,
    given,
    json_value,
    problem_digest,
    problem_of,
    problem_payload,
    question,
    task_from_problem,
    wanted,
)

from programs_tests.coding.builders import function, stdio
from rla.errors import UserError
from rla.store.schema import to_table

CHECKED = Checker(kind=CheckerKind.PROGRAM, program="def check(input, expected, actual):\n    return True")


@pytest.mark.parametrize(
    "problem",
    [
        stdio(("1\n", "2\n"), ("", "")),
        stdio(("1\n", "2\n"), checker=CHECKED, difficulty=3, solution="print(1)", source="mbpp"),
        function(((1,), 2), (([1, 2], "x"), {"a": None})),
        function(((1.5,), [True]), starter="def f(n):", time_limit_s=1.5, memory_limit_mb=64),
    ],
)
def test_a_payload_gives_the_problem_back(problem: Problem) -> None:
    assert problem_of(problem_payload(problem)) == problem


def test_a_problem_is_a_row_of_the_task_pool() -> None:
    task = task_from_problem(stdio(("1\n", "2\n"), source="builtin/affine"), split="train", created=3)
    assert (task.env, task.kind, task.scene, task.slot, task.created) == (
        "coding",
        "stdio",
        "builtin",
        task.task_id,
        3,
    )
    assert to_table("tasks", [task.row()]).num_rows == 1
    assert task_from_problem(function(((1,), 2)), split="train").kind == "function"


def test_the_id_is_of_what_decides_whether_a_program_is_right() -> None:
    problem = stdio(("1\n", "2\n"))
    same = replace(problem, solution="print(2)", difficulty=5, source="elsewhere")
    others = [
        replace(problem, statement="Print 2."),
        replace(problem, tests=(StdioTest("1\n", "3\n"),)),
        replace(problem, checker=Checker(kind=CheckerKind.EXACT)),
        replace(problem, time_limit_s=1.0),
    ]
    assert problem_digest(same) == problem_digest(problem)
    assert len({problem_digest(other) for other in [problem, *others]}) == 5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"statement": " "}, "no statement"),
        ({"tests": ()}, "no tests"),
        ({"tests": (CallTest((1,), 2),)}, "another kind"),
        ({"function": "f"}, "another kind"),
        ({"checker": Checker(kind=CheckerKind.VALUES)}, "does not fit"),
        ({"checker": Checker(kind=CheckerKind.PROGRAM)}, "source"),
        ({"checker": Checker(absolute=-1.0)}, "tolerance"),
        ({"checker": Checker(relative=float("nan"))}, "tolerance"),
        ({"time_limit_s": float("inf")}, "limit"),
        ({"time_limit_s": 1e300}, "limit"),  # beyond what a box can be told
        ({"memory_limit_mb": 10**17}, "limit"),
        ({"statement": "\ud800"}, "Unicode"),
    ],
)
def test_what_is_no_problem_says_why(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidProblem, match=reason):
        replace(stdio(("1\n", "2\n")), **change)


def test_values_that_json_cannot_hold_are_refused() -> None:
    assert json_value(((1, 2), {1: "a"})) == [[1, 2], {"1": "a"}]
    assert json_value([{"b": (1,)}], argument=True) == [{"b": [1]}]
    with pytest.raises(InvalidProblem, match="keys"):  # a function would get "1"
        json_value([{"b": {1: "a"}}], argument=True)
    for value in ({1, 2}, 1j, float("inf"), {(1, 2): 3}):
        with pytest.raises(InvalidProblem, match="not JSON"):
            json_value(value)
    with pytest.raises(InvalidProblem, match="identifier"):
        function(((1,), 2), function="os.system")


def changed(**fields: Any) -> str:
    return json.dumps(json.loads(problem_payload(stdio(("1\n", "2\n")))) | fields)


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "[]",
        "{}",
        "[" * 100_000,
        changed(extra=1),
        changed(tests=[]),
        changed(tests=[{"input": "1"}]),
        changed(tests=[{"input": 1, "output": "2"}]),
        changed(tests=[{"arguments": [1], "expected": 2}]),
        changed(function="__import__('os')"),
        changed(time_limit_s=0),
        changed(difficulty=9),
        changed(checker={"kind": "trust me", "absolute": 0, "relative": 0, "program": None}),
    ],
)
def test_another_payload_is_refused(payload: str) -> None:
    with pytest.raises(UserError, match="make or import the tasks again"):
        problem_of(payload)


def test_a_question_shows_the_code_to_start_from() -> None:
    problem = function(((1,), 2), starter="class Solution:\n    def f(self, n: int) -> int:")
    assert question(problem) == (
        "Write a function f(n) that returns n plus 1.\n\nclass Solution:\n    def f(self, n: int) -> int:"
    )
    assert question(replace(problem, starter=" ")) == problem.statement


def test_what_a_checker_sees_of_a_test() -> None:
    assert (given(StdioTest("1", "2")), wanted(StdioTest("1", "2"))) == ("1", "2")
    assert (given(CallTest((1, "a"), None)), wanted(CallTest((1, "a"), None))) == ([1, "a"], None)
