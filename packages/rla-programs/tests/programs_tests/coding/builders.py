"""Small problems written as they read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any
from unittest.mock import patch

from rla_programs.coding.builtin.recall import Entry, training_entries
from rla_programs.coding.data.checkers import Checker, CheckerKind
from rla_programs.coding.data.problems import CallTest, Problem, StdioTest


@contextmanager
def few_built_in_texts() -> Iterator[None]:
    """New tokenizers learn from every eighth built-in problem; those of `integration/test_golden.py` learn from all."""

    def few() -> Iterator[Entry]:
        return islice(training_entries(), 0, None, 8)

    with patch("rla_programs.coding.demonstrating.training_entries", few):
        yield


def stdio(*pairs: tuple[str, str], **fields: Any) -> Problem:
    """`stdio(("1\\n", "2\\n"))`: prints 2 for 1."""
    fields = {"statement": "Read an integer n. Print n plus 1.", **fields}
    return Problem(tests=tuple(StdioTest(*pair) for pair in pairs), **fields)


def function(*pairs: tuple[tuple[Any, ...], Any], **fields: Any) -> Problem:
    """`function(((1,), 2))`: f(1) is 2."""
    fields = {"statement": "Write a function f(n) that returns n plus 1.", "function": "f", **fields}
    tests = tuple(CallTest(arguments, expected) for arguments, expected in pairs)
    return Problem(tests=tests, **{"checker": Checker(kind=CheckerKind.VALUES), **fields})
