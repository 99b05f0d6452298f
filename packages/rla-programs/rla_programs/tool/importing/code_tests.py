"""Ground truth of code rows in the RL layout, which becomes a programming problem.

    inputs, outputs, fn_name?   texts for standard input and output, or with `fn_name` the arguments of a call, one JSON
                                value per line, and its value; lists may be given as the text of a Python list
    assert_case, fn_name?       lines such as `assert f(1) == 2`
    import_prefix, test_code, entry_point
                                a function with lines `assert candidate(a=1, b=2) == 3`, called with the entry point

Assertions are parsed and never run: calls with literals are accepted, and problems with anything else are refused. The
names of arguments are dropped, so all assertions have to give them in the same order, which must be that of the
signature if the question shows it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Sequence
from typing import Any

from rla_programs.coding.data.problems import CallTest, InvalidProblem, Problem
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
)
from rla_programs.coding.importing.mbpp import LONGEST_ASSERTION, UNREADABLE, Assertion, assertion

LONGEST_TEST_CODE = 4_000_000
ENTRY = re.compile(r"(?:Solution\(\)\.)?([A-Za-z_]\w{0,200})", re.ASCII)
WORD = re.compile(r"\w+")


def problem_of_tests(question: str, truth: Any, **limits: Any) -> Problem:
    """The problem of a question and its ground truth, an object or its JSON text. Raises `InvalidProblem`."""
    cases = mapping(truth, "ground_truth")
    if "test_code" in cases:
        return _of_harness(question, cases, limits)
    if cases.get("assert_case"):
        lines = sequence(_listed(cases["assert_case"]), "assert_case")
        return _of_assertions(question, [assertion(line) for line in lines], limits)
    inputs, outputs = _listed(cases.get("inputs")), _listed(cases.get("outputs"))
    name = optional(cases, "fn_name")
    if not name:
        tests = stdio_tests(sequence(inputs, "inputs"), sequence(outputs, "outputs"))
        return Problem(statement=question, tests=tests, checker=stdio_checker(tests), **limits)
    return _of_calls(question, name, sequence(inputs, "inputs"), sequence(outputs, "outputs"), limits)


def _listed(value: Any) -> Any:
    """A list that may be written as the text of a Python list."""
    if not isinstance(value, str):
        return value
    if len(value) > LONGEST_TEST_CODE:
        raise InvalidProblem("tests that are too long")
    try:
        return ast.literal_eval(value)
    except (SyntaxError, ValueError, TypeError, RecursionError) as error:
        raise InvalidProblem("tests that cannot be read") from error


def _of_calls(question: str, name: str, inputs: list[Any], outputs: list[Any], limits: dict[str, Any]) -> Problem:
    if len(inputs) != len(outputs):
        raise InvalidProblem("not as many inputs as outputs")
    arguments = [_arguments(given) for given in inputs]
    values = [parsed_column(value, "a value") if isinstance(value, str) else value for value in outputs]
    return Problem(
        statement=naming(question, "", name),
        tests=call_tests(arguments, values),
        checker=values_checker(values),
        function=name,
        **limits,
    )


def _arguments(given: Any) -> Sequence[Any]:
    if isinstance(given, str):
        return [parsed_column(line, "an argument") for line in given.split("\n") if line.strip()]
    return sequence(given, "arguments")


def _of_assertions(question: str, found: Sequence[Assertion], limits: dict[str, Any], name: str = "") -> Problem:
    names = {one.function for one in found}
    if len(names) != 1:
        raise InvalidProblem("the tests call several functions" if names else "no tests")
    function = name or names.pop()
    tests: tuple[CallTest, ...] = tuple(one.test for one in found)
    checker = values_checker([test.expected for test in tests])
    return Problem(statement=naming(question, "", function), tests=tests, checker=checker, function=function, **limits)


def _of_harness(question: str, cases: Row, limits: dict[str, Any]) -> Problem:
    code, entry = text(cases, "test_code"), ENTRY.fullmatch(text(cases, "entry_point").strip())
    if len(code) > LONGEST_TEST_CODE or entry is None:
        raise InvalidProblem("tests that are too long, or an entry point that is not a name")
    try:
        body = ast.parse(code).body
        functions = [node for node in body if isinstance(node, ast.FunctionDef)]
        if len(functions) != 1 or len(functions[0].args.args) != 1:
            raise InvalidProblem(UNREADABLE)
        orders: set[tuple[str, ...]] = set()
        lines = [_positional(node, orders) for node in functions[0].body]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise InvalidProblem(UNREADABLE) from error
    orders.discard(())
    if len(orders) > 1 or any(not _in_signature(question, entry[1], order) for order in orders):
        raise InvalidProblem("the order of the arguments is not known")
    prelude = _import_lines(optional(cases, "import_prefix"))
    if prelude:
        limits = {**limits, "prelude": prelude}
    short = [line for line in lines if len(line) <= LONGEST_ASSERTION]
    return _of_assertions(question, [assertion(line) for line in short], limits, name=entry[1])


def _positional(node: ast.stmt, orders: set[tuple[str, ...]]) -> str:
    """The assertion with its named arguments as positional ones."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "candidate":
            if any(one.arg is None for one in inner.keywords):
                raise InvalidProblem(UNREADABLE)
            orders.add(tuple(str(one.arg) for one in inner.keywords))
            inner.args, inner.keywords = [*inner.args, *(one.value for one in inner.keywords)], []
    return ast.unparse(node)


def _import_lines(prefix: str) -> str:
    """The imports of the standard library in the code that a data set puts in front of programs, as one line."""
    try:
        body = ast.parse(prefix[:LONGEST_ASSERTION]).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    return "; ".join(
        ast.unparse(node) for node in imports if _modules(node) <= sys.stdlib_module_names - {"__future__"}
    )


def _modules(node: ast.Import | ast.ImportFrom) -> set[str]:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return {name.partition(".")[0] for name in names}


def _in_signature(question: str, function: str, names: Sequence[str]) -> bool:
    """Whether the names are in the order of the function's signature, if the question has one."""
    _, found, after = question.partition(f"def {function}(")
    words = WORD.findall(after.partition(")")[0])
    places = [words.index(name) if name in words else -1 for name in names]
    return not found or (-1 not in places and places == sorted(places))
