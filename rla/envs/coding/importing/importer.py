"""From files to problems: rows that are none are counted, tests that are too large or too many are left out.

The first `max_tests` tests of a problem that are small enough stay, in the data set's order (examples first).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from rla.envs.coding.data.problems import InvalidProblem, Problem, StdioTest, Test, problem_digest
from rla.envs.coding.importing.hub import PREFIX, fetched
from rla.envs.coding.importing.layouts import DataLayout, data_layout_of, layout_named
from rla.envs.coding.importing.rows import data_rows, files_of
from rla.errors import UserError

MAX_TESTS = 32
MAX_TEST_CHARS = 20_000


@dataclass(slots=True)
class Imported:
    """The problems, the rows that are none by reason, and how many tests of the problems were left out."""

    problems: list[Problem] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    tests_left_out: int = 0

    def summary(self) -> str:
        """One line for people: what was read and what was not."""
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.skipped.most_common())
        left_out = f"; {self.tests_left_out} tests left out" if self.tests_left_out else ""
        return f"{len(self.problems)} problems, {self.skipped.total()} rows skipped ({reasons or 'none'}){left_out}"


def import_problems(
    source: str | Path,
    *,
    split: str,
    layout: str | None = None,
    limit: int | None = None,
    max_tests: int = MAX_TESTS,
    max_test_chars: int = MAX_TEST_CHARS,
) -> Imported:
    """The problems of a file, of a folder's `split`, or of `hub:owner/name`, each content once.

    `layout` is a name of `layouts.LAYOUTS`; without it each file's columns tell. Reading ends after `limit` problems.
    Raises `UserError` where a file cannot be read, its layout is unknown, or there is no problem at all.
    """
    named = None if layout is None else layout_named(layout)
    where = str(source)
    files = fetched(where, split) if where.startswith(PREFIX) else files_of(Path(source), split)
    found, seen = Imported(), set[str]()
    for problem in _problems(files, named, found):
        if limit is not None and len(found.problems) >= limit:
            break
        _add(found, seen, problem, max_tests=max_tests, max_test_chars=max_test_chars)
    if not found.problems:
        raise UserError(f"{where}: no problem in it: {found.summary()}")
    return found


def _problems(files: list[Path], named: DataLayout | None, found: Imported) -> Iterator[Problem]:
    for path in files:
        layout = named
        for row in data_rows(path):
            if row is None:
                found.skipped["not a JSON object"] += 1
                continue
            layout = layout or data_layout_of(row, where=str(path))
            try:
                yield layout.read(row)
            except InvalidProblem as error:
                found.skipped[str(error)] += 1


def _add(found: Imported, seen: set[str], problem: Problem, *, max_tests: int, max_test_chars: int) -> None:
    tests = tuple(test for test in problem.tests if _size(test) <= max_test_chars)[:max_tests]
    if not tests:
        found.skipped["no test is small enough"] += 1
        return
    kept = replace(problem, tests=tests)
    if problem_digest(kept) in seen:
        found.skipped["the same problem again"] += 1
        return
    seen.add(problem_digest(kept))
    found.problems.append(kept)
    found.tests_left_out += len(problem.tests) - len(tests)


def _size(test: Test) -> int:
    if isinstance(test, StdioTest):
        return len(test.input) + len(test.output)
    return len(repr(test))
