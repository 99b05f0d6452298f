"""Reading columns of untrusted rows.

Each function raises `InvalidProblem` with a reason that quotes nothing, so that equal reasons can be counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rla_programs.coding.data.checkers import Checker, CheckerKind
from rla_programs.coding.data.problems import TOO_LONG, CallTest, InvalidProblem, StdioTest, json_value
from rla_programs.coding.importing.bounds import bounded_json
from rla_programs.execution.nesting import levels

Row = Mapping[str, Any]
FRACTION = re.compile(r"[+-]?(\d*\.\d+|\d+\.|\d+(?=[eE]))([eE][+-]?\d+)?", re.ASCII)  # 1e-05 has no point
TOLERANCE = 1e-6  # absolute and relative
SMALL = 100 * TOLERANCE  # an absolute tolerance would make numbers below it equal
AMOUNT = re.compile(r"\s*(\d{1,6}(\.\d{1,6})?)", re.ASCII)
LONGEST_TIME_S = 60.0
LARGEST_MEMORY_MB = 4096  # larger values are in another unit, or a typing error


def text(row: Row, name: str) -> str:
    """A column that has to be a string, possibly empty."""
    if name not in row:
        raise InvalidProblem(f"no column {name}")
    if not isinstance(row[name], str):
        raise InvalidProblem(f"{name} is no text")
    return str(row[name])


def optional(row: Row, name: str) -> str:
    """The column's string, or an empty one if it is missing."""
    value = row.get(name)
    return value if isinstance(value, str) else ""


def sequence(value: Any, what: str) -> list[Any]:
    """A list; `what` names it in the reason."""
    if not isinstance(value, list):
        raise InvalidProblem(f"{what} is no list")
    return value


def mapping(value: Any, what: str) -> Row:
    """A JSON object, given as such or as JSON text."""
    found = parsed_column(value, what) if isinstance(value, str) else value
    if not isinstance(found, Mapping):
        raise InvalidProblem(f"{what} is no object")
    return found


def parsed_column(value: str, what: str) -> Any:
    """The value of a JSON text."""
    try:
        return bounded_json(value)
    except InvalidProblem:
        raise
    except (ValueError, RecursionError) as error:
        long = "digits" in str(error)
        raise InvalidProblem(TOO_LONG if long else f"{what} is no JSON") from error


def stdio_tests(inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[StdioTest, ...]:
    """Pairs of strings; a list of lines counts as a string."""
    if len(inputs) != len(outputs):
        raise InvalidProblem("not as many inputs as outputs")
    pairs = zip(map(_lines, inputs), map(_lines, outputs), strict=True)
    return tuple(StdioTest(given, wanted) for given, wanted in pairs)


def _lines(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if not isinstance(value, str):
        raise InvalidProblem("an input or output is not a string")
    return value


def call_tests(arguments: Iterable[Sequence[Any]], values: Iterable[Any]) -> tuple[CallTest, ...]:
    """Calls as JSON values."""
    return tuple(
        CallTest(tuple(json_value(list(given))), json_value(wanted))
        for given, wanted in zip(arguments, values, strict=True)
    )


def stdio_checker(tests: Sequence[StdioTest]) -> Checker:
    """Numbers with a tolerance if an expected output has a decimal fraction, else equal tokens."""
    tokens = (token for test in tests for token in test.output.split() if len(token) < 64)
    fractions = [float(token) for token in tokens if FRACTION.fullmatch(token)]
    return Checker(
        kind=CheckerKind.FLOATS if fractions else CheckerKind.TOKENS, absolute=_absolute_tolerance(fractions)
    )


def values_checker(values: Iterable[Any]) -> Checker:
    """Equal JSON values, fractions with a tolerance."""
    fractions = (one for value in values for level in levels(value) for one in level if isinstance(one, float))
    return Checker(kind=CheckerKind.VALUES, absolute=_absolute_tolerance(fractions))


def _absolute_tolerance(expected: Iterable[float]) -> float:
    """The absolute tolerance, 0 if an expected number is so small that others and 0 would equal it."""
    return 0.0 if any(0 < abs(number) < SMALL for number in expected) else TOLERANCE


def amount(value: Any) -> float | None:
    """The number that a value is or begins with, as in "2.0 seconds"; None if it is not positive."""
    found = AMOUNT.match(value) if isinstance(value, str) else None
    number = float(found[1]) if found else value
    return float(number) if isinstance(number, int | float) and 0 < number < 1e18 else None


def row_limits(time_s: float | None, memory_mb: float | None) -> dict[str, Any]:
    """The fields of a problem's limits; missing ones get the defaults."""
    found: dict[str, Any] = {}
    if time_s is not None:
        found["time_limit_s"] = min(time_s, LONGEST_TIME_S)
    if memory_mb is not None and memory_mb >= 1:
        found["memory_limit_mb"] = int(min(memory_mb, LARGEST_MEMORY_MB))
    return found


def without_images(statement: str) -> str:
    """The statement. Raises `InvalidProblem` if it depends on a picture."""
    if "<image>" in statement or "<img" in statement:
        raise InvalidProblem("the statement needs an image")
    return statement


def naming(statement: str, starter: str, function: str) -> str:
    """The statement, with the function's name added if neither it nor the starter names it."""
    told = function in statement or function in starter
    return statement if told else f"{statement.rstrip()}\n\nThe function is called {function}."
