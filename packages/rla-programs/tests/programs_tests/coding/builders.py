"""Small problems written as they read."""

from __future__ import annotations

from typing import Any

from rla_programs.coding.data.checkers import Checker, CheckerKind
from rla_programs.coding.data.problems import CallTest, Problem, StdioTest


def stdio(*pairs: tuple[str, str], **fields: Any) -> Problem:
    """`stdio(("1\\n", "2\\n"))`: prints 2 for 1."""
    fields = {"statement": "Read an integer n. Print n plus 1.", **fields}
    return Problem(tests=tuple(StdioTest(*pair) for pair in pairs), **fields)


def function(*pairs: tuple[tuple[Any, ...], Any], **fields: Any) -> Problem:
    """`function(((1,), 2))`: f(1) is 2."""
    fields = {"statement": "Write a function f(n) that returns n plus 1.", "function": "f", **fields}
    tests = tuple(CallTest(arguments, expected) for arguments, expected in pairs)
    return Problem(tests=tests, **{"checker": Checker(kind=CheckerKind.VALUES), **fields})
