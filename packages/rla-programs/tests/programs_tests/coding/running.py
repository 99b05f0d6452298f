"""Runs trusted test programs in one fresh interpreter: what the tests here need, and no sandbox."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from rla_programs.coding.data.checkers import agrees
from rla_programs.coding.data.problems import Problem, Test, given, wanted

RUNNER = """
import contextlib, io, json, sys
answers = []
for source, function, given in json.load(sys.stdin):
    real, row = sys.stdin, []
    for value in given:
        out = io.StringIO()
        try:
            if function is None:
                sys.stdin = io.StringIO(value)
                with contextlib.redirect_stdout(out):
                    exec(source, {"__name__": "__main__"})
                row.append([True, out.getvalue()])
            else:
                names = {}
                exec(source, names)
                row.append([True, json.loads(json.dumps(names[function](*value)))])
        except Exception:
            row.append([False, None])
    sys.stdin = real
    answers.append(row)
print(json.dumps(answers))
"""


def answers(problem: Problem, programs: Sequence[str], tests: Sequence[Test]) -> list[list[Any]]:
    """`[program][test]`: what it printed or returned, None where it failed."""
    return many([(problem, program, tests) for program in programs])


def many(jobs: Sequence[tuple[Problem, str, Sequence[Test]]]) -> list[list[Any]]:
    """The same for programs of different problems, all in one process."""
    sent = [(program, p.function, list(map(given, tests))) for p, program, tests in jobs]
    return [[value if ok else None for ok, value in row] for row in ran(sent)]


def ran(sent: Sequence[tuple[str, str | None, list[Any]]]) -> list[list[tuple[bool, Any]]]:
    """Per (source, function or None, inputs) and input: whether it ended well, and what it printed or returned."""
    command = [sys.executable, "-I", "-c", RUNNER]
    done = subprocess.run(command, input=json.dumps(sent), capture_output=True, text=True, check=True, timeout=60)
    rows: list[list[tuple[bool, Any]]] = json.loads(done.stdout)
    return rows


def passes(problem: Problem, test: Test, answer: Any) -> bool:
    return answer is not None and agrees(problem.checker, wanted(test), answer)
