"""CodeContests, APPS, TACO, and the files of the published implementation.

    codecontests   description, public_tests, private_tests, generated_tests {input, output}, time_limit {seconds}
    apps, taco     question, input_output: JSON {inputs, outputs, fn_name?}, starter_code, solutions: JSON list
    published      question, test_input, test_output, test_time_limit

The official runner of APPS and TACO puts imports in front of every program; it also adds numpy, which our sandbox does
not have. APPS and TACO wrap a function's value in a list. It is unwrapped if every value of a problem is a list of one
element.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rla_programs.coding.data.problems import InvalidProblem, Problem
from rla_programs.coding.importing.columns import (
    Row,
    amount,
    call_tests,
    mapping,
    naming,
    optional,
    parsed_column,
    row_limits,
    sequence,
    stdio_checker,
    stdio_tests,
    text,
    values_checker,
    without_images,
)

OFFICIAL_IMPORTS = "; ".join(
    (
        "import sys, time, itertools, collections, math, fractions, random, heapq",
        "from itertools import accumulate, product, permutations, combinations",
        "from collections import Counter, OrderedDict, deque, defaultdict, ChainMap",
        "from functools import lru_cache",
        "from math import sqrt, sin, cos, tan, ceil, fabs, floor, gcd, exp, log, log2",
        "from typing import List, Tuple",
        "from heapq import *",
    )
)
PYTHON3 = 3  # of the languages of CodeContests
RATINGS = (1200, 1600, 2000, 2400)  # of Codeforces: below the first is difficulty 1
LEVELS = {
    "introductory": 2,
    "interview": 3,
    "competition": 5,
    "easy": 1,
    "medium": 2,
    "medium_hard": 3,
    "hard": 4,
    "very_hard": 5,
}


def codecontests(row: Row) -> Problem:
    """All three kinds of tests in their order. Problems that read a file are refused."""
    if optional(row, "input_file") or optional(row, "output_file"):
        raise InvalidProblem("reads or writes a file")
    pairs = [pair for name in ("public_tests", "private_tests", "generated_tests") for pair in _pairs(row.get(name))]
    tests = stdio_tests([given for given, _ in pairs], [wanted for _, wanted in pairs])
    memory = amount(row.get("memory_limit_bytes"))
    return Problem(
        statement=without_images(text(row, "description")),
        tests=tests,
        checker=stdio_checker(tests),
        solution=_python3(row.get("solutions")),
        difficulty=_rated(row.get("cf_rating")),
        source="codecontests",
        **row_limits(_duration(row.get("time_limit")), memory / 2**20 if memory else None),
    )


def apps(row: Row) -> Problem:
    """A row of APPS or TACO."""
    cases = mapping(text(row, "input_output"), "input_output")
    inputs, outputs = sequence(cases.get("inputs"), "inputs"), sequence(cases.get("outputs"), "outputs")
    common: dict[str, Any] = {
        "starter": optional(row, "starter_code"),
        "solution": _first(row.get("solutions")),
        "difficulty": LEVELS.get(optional(row, "difficulty").lower()),
        "prelude": OFFICIAL_IMPORTS,
        "source": "taco" if "raw_tags" in row else "apps",
        **row_limits(amount(row.get("time_limit")), amount(row.get("memory_limit"))),
    }
    statement = without_images(text(row, "question"))
    name = cases.get("fn_name")
    if name is None:
        tests = stdio_tests(inputs, outputs)
        return Problem(statement=statement, tests=tests, checker=stdio_checker(tests), **common)
    if not isinstance(name, str) or len(inputs) != len(outputs):
        raise InvalidProblem("the calls cannot be read")
    arguments = [sequence(given, "arguments") for given in inputs]
    wrapped = all(isinstance(value, list) and len(value) == 1 for value in outputs)
    values = [value[0] for value in outputs] if wrapped else outputs
    return Problem(
        statement=naming(statement, common["starter"], name),
        tests=call_tests(arguments, values),
        checker=values_checker(values),
        function=name,
        **common,
    )


def published(row: Row) -> Problem:
    """A row of the data sets that the published implementation downloads; they use stdio only."""
    if row.get("test_method", "stdio") not in ("stdio", None):
        raise InvalidProblem("the test method is not stdio")
    tests = stdio_tests(sequence(row.get("test_input"), "test_input"), sequence(row.get("test_output"), "test_output"))
    return Problem(
        statement=without_images(text(row, "question")),
        tests=tests,
        checker=stdio_checker(tests),
        source="published",
        **row_limits(amount(row.get("test_time_limit")), None),
    )


def _pairs(tests: Any) -> Sequence[tuple[Any, Any]]:
    """From an object of lists, or from a list of objects: both occur."""
    if tests is None:
        return []
    if isinstance(tests, Mapping):
        inputs, outputs = sequence(tests.get("input"), "input"), sequence(tests.get("output"), "output")
        if len(inputs) != len(outputs):
            raise InvalidProblem("not as many inputs as outputs")
        return list(zip(inputs, outputs, strict=True))
    found = [mapping(test, "a test") for test in sequence(tests, "tests")]
    return [(test.get("input"), test.get("output")) for test in found]


def _duration(value: Any) -> float | None:
    if not isinstance(value, Mapping):
        return amount(value)
    seconds, nanos = value.get("seconds"), value.get("nanos")
    return amount((seconds if isinstance(seconds, int) else 0) + (nanos if isinstance(nanos, int) else 0) / 1e9)


def _python3(solutions: Any) -> str | None:
    if not isinstance(solutions, Mapping):
        return None
    languages, sources = solutions.get("language"), solutions.get("solution")
    if not isinstance(languages, list) or not isinstance(sources, list):
        return None
    found = (source for language, source in zip(languages, sources, strict=False) if language in (PYTHON3, "PYTHON3"))
    source = next(found, None)
    return source if isinstance(source, str) else None


def _first(solutions: Any) -> str | None:
    """The first of a list, or of a list as JSON text. A problem does not need a solution."""
    try:
        found = parsed_column(solutions, "solutions") if isinstance(solutions, str) else solutions
    except InvalidProblem:
        return None
    return found[0] if isinstance(found, list) and found and isinstance(found[0], str) else None


def _rated(rating: Any) -> int | None:
    return 1 + sum(rating >= bound for bound in RATINGS) if isinstance(rating, int) and rating > 0 else None
