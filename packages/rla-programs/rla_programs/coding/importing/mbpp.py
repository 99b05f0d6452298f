"""MBPP: text (or prompt), code, test_list, test_setup_code, challenge_test_list.

A test is a line such as `assert f([1, 2]) == (3, 4)`. It is parsed and its literals are read; nothing is executed. The
accepted forms are

    assert f(...) == value       assert value == f(...)       assert f(...)       assert not f(...)
    assert math.isclose(f(...), value, rel_tol=..., abs_tol=...)

A row with any other test is refused, because wrong programs might pass the remaining tests. As in Python 1 equals True
and 1.0; unlike there a list equals a tuple of the same values. Arguments are JSON: a tuple is passed as a list, and the
statement says so. A row whose arguments have keys that are not strings is refused.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from rla_programs.coding.data.checkers import Checker, CheckerKind
from rla_programs.coding.data.problems import CallTest, InvalidProblem, Problem, json_value
from rla_programs.coding.importing.columns import Row, optional, sequence, text

LONGEST_ASSERTION = 20_000
AS_LISTS = "\nTuples are passed as lists; a list may be returned for a tuple."
UNREADABLE = "an assertion that is not of the form f(literals) == literal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertion:
    """A parsed assertion; `tolerances` are those of `math.isclose` (relative, absolute)."""

    function: str
    test: CallTest
    tuples: bool  # among the arguments
    tolerances: tuple[float, float] | None = None


def mbpp(row: Row) -> Problem:
    """A row of the full or of the sanitized set."""
    if optional(row, "test_setup_code").strip():
        raise InvalidProblem("the tests need set-up code")
    lines = [
        *sequence(row.get("test_list"), "test_list"),
        *sequence(row.get("challenge_test_list") or [], "challenge_test_list"),
    ]
    assertions = [assertion(line) for line in lines]
    names = {found.function for found in assertions}
    if len(names) != 1:
        raise InvalidProblem("the tests call several functions" if names else "no tests")
    name = names.pop()
    tolerances = {found.tolerances for found in assertions} - {None}
    relative, absolute = max((found for found in tolerances if found), default=(1e-6, 1e-6))
    statement = text(row, "text" if "text" in row else "prompt").rstrip()
    statement += f"\nThe function is called {name}. Example: {lines[0].strip()}"
    return Problem(
        statement=statement + (AS_LISTS if any(found.tuples for found in assertions) else ""),
        tests=tuple(found.test for found in assertions),
        checker=Checker(kind=CheckerKind.VALUES, relative=relative, absolute=absolute),
        function=name,
        solution=optional(row, "code") or None,
        source="mbpp",
    )


def assertion(line: Any) -> Assertion:
    """Parse one test. Raises `InvalidProblem`."""
    if not isinstance(line, str) or len(line) > LONGEST_ASSERTION:
        raise InvalidProblem(UNREADABLE)
    try:
        body = ast.parse(line.strip()).body
        if len(body) != 1 or not isinstance(body[0], ast.Assert):
            raise InvalidProblem(UNREADABLE)
        return _read(body[0].test)
    except (SyntaxError, ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise InvalidProblem(UNREADABLE) from error


def _read(test: ast.expr) -> Assertion:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _said(test.operand, False)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        left, right = test.left, test.comparators[0]
        call, value = (left, right) if _is_call(left) else (right, left)
        return _said(call, ast.literal_eval(value))
    if isinstance(test, ast.Call) and ast.unparse(test.func) in ("math.isclose", "isclose"):
        return _close(test)
    return _said(test, True)


def _is_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id not in ("set", "sorted")


def _said(call: ast.expr, value: Any, tolerances: tuple[float, float] | None = None) -> Assertion:
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        raise InvalidProblem(UNREADABLE)
    arguments = [ast.literal_eval(argument) for argument in call.args]
    test = CallTest(tuple(json_value(arguments, argument=True)), json_value(value))
    tuples = any(isinstance(node, ast.Tuple) for argument in call.args for node in ast.walk(argument))
    return Assertion(function=call.func.id, test=test, tuples=tuples, tolerances=tolerances)


def _close(call: ast.Call) -> Assertion:
    options = {str(option.arg): float(ast.literal_eval(option.value)) for option in call.keywords}
    if len(call.args) != 2 or not set(options) <= {"rel_tol", "abs_tol"}:
        raise InvalidProblem(UNREADABLE)
    tolerances = (options.get("rel_tol", 1e-9), options.get("abs_tol", 0.0))
    return _said(call.args[0], float(ast.literal_eval(call.args[1])), tolerances)  # an integer would have no tolerance
