"""Whether an answer agrees with a test: the output of a program, or the value that its function returned.

    tokens    equal sequences of tokens separated by white space; case matters                  (stdio)
    floats    like tokens, but if e is not an integer, numbers agree if a = e or
              |a - e| <= max(absolute, relative * |e|)                                          (stdio)
    exact     equal texts, except for one line end after the last line                          (stdio)
    values    equal JSON values: tuples are lists, numbers as under `floats`, True is 1         (function)
    program   decided by the problem's own checker program                                      (both)

e is the expected and a the actual number. An integer e has no tolerance: only the number itself agrees with it, also as
a fraction (3.0, but no float agrees with 2**53 + 1). Numbers beyond the floats and infinities have no tolerance either.
Answers are untrusted: each comparison takes time linear in them, however long or deep they are. Empty texts are answers
like any other.

A checker program comes from the data set and runs in the sandbox like any program. It defines

    def check(input, expected, actual): ...

which is called with the test's input (stdin text, or the list of arguments), its expected output or value, and the
answer; `True` accepts it. The answer is an argument of a call, never part of the source. `checker_calls` gives the
calls for many answers, so that one job can run them all; `checker_verdict` reads the results.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple

Json = Any  # the result of `json.loads`
CHECK = "check"
LONGEST_NUMBER = 400  # parsing a decimal takes more than linear time: longer tokens are compared as text
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)


class CheckerKind(StrEnum):
    """The rules above."""

    TOKENS = "tokens"
    FLOATS = "floats"
    EXACT = "exact"
    VALUES = "values"
    PROGRAM = "program"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checker:
    """A rule and its tolerances (`floats`, `values`) or its source (`program`)."""

    kind: CheckerKind = CheckerKind.TOKENS
    absolute: float = 1e-6
    relative: float = 1e-6
    program: str | None = None


class CheckerCall(NamedTuple):
    """A call to make in the sandbox: the function's name and its arguments, all of them JSON values."""

    function: str
    arguments: tuple[Json, Json, Json]


def agrees(checker: Checker, expected: Json, actual: Json) -> bool:
    """Whether the answer `actual` is right by one of our rules: texts for stdio, JSON values for functions.

    Raises `ValueError` for a checker program, which has to run in the sandbox.
    """
    match checker.kind:
        case CheckerKind.TOKENS:
            return bool(expected.split() == actual.split())
        case CheckerKind.FLOATS:
            return _same_tokens(checker, expected.split(), actual.split())
        case CheckerKind.EXACT:
            return bool(_text(expected) == _text(actual))
        case CheckerKind.VALUES:
            return _same_values(checker, expected, actual)
        case CheckerKind.PROGRAM:
            raise ValueError("a checker program runs in the sandbox: see checker_calls")


def checker_calls(asked: Iterable[tuple[Json, Json, Json]]) -> list[CheckerCall]:
    """Calls of a checker program's `check`, one for each (input, expected, actual)."""
    return [CheckerCall(CHECK, arguments) for arguments in asked]


def checker_verdict(value: Json) -> bool:
    """A checker program's verdict. Only `True` accepts; 1, "yes" or None do not."""
    return value is True


def _text(text: str) -> str:
    return text.replace("\r\n", "\n").removesuffix("\n")


def _same_tokens(checker: Checker, expected: Sequence[str], actual: Sequence[str]) -> bool:
    if len(expected) != len(actual):
        return False
    return all(e == a or _same_readings(checker, e, a) for e, a in zip(expected, actual, strict=True))


def _same_readings(checker: Checker, expected: str, actual: str) -> bool:
    if not (_is_number(expected) and _is_number(actual)):
        return False
    e, a = float(expected), float(actual)
    if _is_integer(expected) or math.isinf(e) or math.isinf(a):
        return Decimal(expected) == Decimal(actual)  # exact, whatever a float can represent
    return _close(checker, e, a)


def _is_number(token: str) -> bool:
    return len(token) <= LONGEST_NUMBER and NUMBER.fullmatch(token) is not None


def _is_integer(token: str) -> bool:
    return token.lstrip("+-").isdecimal()


def _close(checker: Checker, expected: float, actual: float) -> bool:
    """Infinities agree with themselves, a NaN with nothing."""
    if expected == actual:
        return True
    difference = abs(actual - expected)
    if not difference < float("inf"):
        return False
    return difference <= max(checker.absolute, checker.relative * abs(expected))


def _same_values(checker: Checker, expected: Json, actual: Json) -> bool:
    """Without recursion, because an answer may be nested deeper than our stack."""
    pending: list[tuple[Json, Json]] = [(expected, actual)]
    while pending:
        e, a = pending.pop()
        if isinstance(e, list | tuple):
            if not isinstance(a, list | tuple) or len(e) != len(a):
                return False
            pending.extend(zip(e, a, strict=True))
        elif isinstance(e, Mapping):
            if not isinstance(a, Mapping) or e.keys() != a.keys():
                return False
            pending.extend((e[key], a[key]) for key in e)
        elif not _same_scalars(checker, e, a):
            return False
    return True


def _same_scalars(checker: Checker, expected: Json, actual: Json) -> bool:
    if isinstance(expected, int | float) and isinstance(actual, int | float):
        if isinstance(expected, int):
            return expected == actual  # exact, even if one is a float
        try:
            return _close(checker, float(expected), float(actual))
        except OverflowError:  # an integer beyond the floats
            return False
    return type(expected) is type(actual) and bool(expected == actual)
