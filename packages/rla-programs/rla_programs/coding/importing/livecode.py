"""LiveCodeBench, and the coding tasks of LiveBench, which are LiveCodeBench problems in another envelope.

    livecodebench   question_content, starter_code, public_test_cases, private_test_cases, metadata {func_name}
    livebench       question_title, original_json {question_content, ...}, public_test_cases, private_test_cases,
                    partial_solution

Tests are JSON lists of {input, output, testtype}; hidden ones may be packed (`pickled.py`). With testtype `functional`
each line of the input is an argument and the output the value, in JSON. The limit of 6 s and the imports in front of
every program come from the official runner: starters name `List` without importing it.
"""

from __future__ import annotations

from typing import Any

from rla_programs.coding.data.problems import InvalidProblem, Problem
from rla_programs.coding.importing.columns import (
    Row,
    call_tests,
    mapping,
    naming,
    optional,
    parsed_column,
    sequence,
    stdio_checker,
    stdio_tests,
    text,
    values_checker,
    without_images,
)
from rla_programs.coding.importing.pickled import hidden_tests

TIME_LIMIT_S = 6.0
MEMORY_LIMIT_MB = 1024
STARRED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json", "builtins", "typing"),
)
NAMED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json"),
)
# In the order of the official runner: `builtins` restores `pow` and `open`, which `math` and `io` have shadowed.
OFFICIAL_IMPORTS = "; ".join(
    (
        *(f"from {name} import *" for name in STARRED),
        *(f"import {name}" for name in NAMED),
        "sys.setrecursionlimit(50000)",
    )
)
LIVECODE = "livecodebench"
LONGEST_ID = 100  # characters
LEVELS = {"easy": 2, "medium": 3, "hard": 4}


def livecodebench(row: Row) -> Problem:
    """A row of `code_generation` or `code_generation_lite`."""
    return _problem(row, row, text(row, "question_content"), source=livecode_source(row))


def livecode_source(*places: Row) -> str:
    """`livecodebench/abc301_a`, with the `question_id` of the first place that has one, or `livecodebench` alone. The
    official runner identifies a question by this id.
    """
    names = (optional(place, "question_id").strip() for place in places)
    return "/".join((LIVECODE, *[name for name in names if 0 < len(name) <= LONGEST_ID][:1]))


def livebench(row: Row) -> Problem:
    """A row of LiveBench's coding category. A completion task asks for the complete program."""
    if not isinstance(row.get("private_test_cases"), str):
        raise InvalidProblem("the tests are a test module")
    original = mapping(row.get("original_json"), "original_json")
    statement = text(original, "question_content")
    begun = optional(row, "partial_solution").strip()
    if begun:
        statement += f"\n\nThe program begins with these lines; write all of it:\n\n{begun}"
    return _problem(row, original, statement, source="livebench")


def _problem(row: Row, about: Row, statement: str, *, source: str) -> Problem:
    cases = [
        mapping(case, "a test")
        for case in [
            *sequence(parsed_column(text(row, "public_test_cases"), "public_test_cases"), "public_test_cases"),
            *sequence(hidden_tests(text(row, "private_test_cases")), "private_test_cases"),
        ]
    ]
    functional = {case.get("testtype") == "functional" for case in cases}
    if len(functional) != 1:
        raise InvalidProblem("no tests" if not cases else "tests of both kinds")
    inputs, outputs = [text(case, "input") for case in cases], [text(case, "output") for case in cases]
    common: dict[str, Any] = {
        "prelude": OFFICIAL_IMPORTS,
        "time_limit_s": TIME_LIMIT_S,
        "memory_limit_mb": MEMORY_LIMIT_MB,
        "difficulty": LEVELS.get(optional(about, "difficulty").lower()),
        "source": source,
    }
    statement = without_images(statement)
    if not functional.pop():
        tests = stdio_tests(inputs, outputs)
        return Problem(statement=statement, tests=tests, checker=stdio_checker(tests), **common)
    name = text(mapping(about.get("metadata"), "metadata"), "func_name")
    starter = optional(about, "starter_code")
    arguments = [[parsed_column(line, "an argument") for line in given.split("\n") if line.strip()] for given in inputs]
    values = [parsed_column(value, "a value") for value in outputs]
    return Problem(
        statement=naming(statement, starter, name),
        starter=starter,
        tests=call_tests(arguments, values),
        checker=values_checker(values),
        function=name,
        **common,
    )
