"""From files to problems: invalid rows are counted, and tests that are too large or too many are left out.

The first `max_tests` tests of a problem that are small enough are kept, in the data set's order (examples first). Rows
are read in a separate process (`apart`), which limits the memory that a malicious data set can take.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rla.errors import UserError
from rla_programs.coding.data.problems import Problem, problem_digest
from rla_programs.coding.importing.apart import Order, RowRead, problem_reader, read_apart
from rla_programs.coding.importing.hub import PREFIX, fetched
from rla_programs.coding.importing.layouts import layout_named
from rla_programs.coding.importing.rows import files_of

MAX_TESTS = 32
MAX_TEST_CHARS = 20_000


@dataclass(slots=True)
class Imported:
    """The problems, the invalid rows by reason, and the number of tests that were left out."""

    problems: list[Problem] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    tests_left_out: int = 0

    def summary(self) -> str:
        """One line for the user: rows that were read and rows that were not."""
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
    """The problems of a file, of a folder's `split`, or of `hub:owner/name`, without duplicates.

    `layout` is a name in `layouts.LAYOUTS`; by default each file's columns decide. Reading ends after `limit` problems.
    Raises `UserError` if a file cannot be read, if its layout is unknown, or if there is no problem at all.
    """
    if layout is not None:
        layout_named(layout)
    where = str(source)
    files = fetched(where, split) if where.startswith(PREFIX) else files_of(Path(source), split)
    found, seen = Imported(), set[str]()
    order = Order(
        files=tuple(map(str, files)),
        opener=problem_reader,
        layout=layout,
        max_tests=max_tests,
        max_test_chars=max_test_chars,
    )
    with contextlib.closing(read_apart(order)) as rows:
        for read in rows:
            if limit is not None and len(found.problems) >= limit:
                break
            _add(found, seen, read)
    if not found.problems:
        raise UserError(f"{where}: no problem in it: {found.summary()}")
    return found


def _add(found: Imported, seen: set[str], read: RowRead) -> None:
    if read.found is None:
        found.skipped[read.reason] += 1
        return
    digest = problem_digest(read.found)
    if digest in seen:
        found.skipped["the same problem again"] += 1
        return
    seen.add(digest)
    found.problems.append(read.found)
    found.tests_left_out += read.tests_left_out
