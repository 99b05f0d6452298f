"""Reads rows in a separate process with a memory limit, so that a malicious row cannot exhaust the stage's memory.

    parent ──pickled `Order`──▶ child: one pickled `RowRead` for each row, in order, then None

The child refuses a row that is too large and reads the next. If a row kills the child, another child continues behind
that row, up to MOST_DEATHS times. Neither process executes anything from a data set.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla_programs.coding.data.problems import InvalidProblem, Problem, StdioTest, Test
from rla_programs.coding.importing.layouts import data_layout_of, layout_named
from rla_programs.coding.importing.rows import Row, data_rows

ROOM = 2 << 30  # bytes of address space beyond the interpreter's
ROOM_PER_BYTE = 8  # per byte of the largest file: a list of rows is read as a whole
MOST_DEATHS = 8
TOO_LARGE = "a row that takes more memory than reading has"
NO_TEST = "no test is small enough"


Reader = Callable[[Row], "RowRead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The files to read, the first row, and two limits on tests; tests beyond them are left out.

    `opener` gives the reader of a file's rows: it takes the order, the first row and the file's name. It is a
    module-level function, or a `functools.partial` of one, because it is sent to the process.
    """

    files: tuple[str, ...]
    opener: Callable[[Order, Row, str], Reader]
    layout: str | None
    max_tests: int
    max_test_chars: int
    skip: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRead:
    """The result of one row: the record and the number of its tests that were left out, or why it is not one, or why
    reading cannot go on.
    """

    found: Any = None  # a Problem, or another record that the reader makes
    tests_left_out: int = 0
    reason: str = ""
    refusal: str = ""


def read_apart(order: Order, *, room: int = ROOM) -> Generator[RowRead, None, None]:
    """Each row of the files, in order. Raises UserError if a file cannot be read or its layout is unknown."""
    deaths = 0
    while True:
        process = started(room)
        try:
            for read in _rows_read(process, order):
                if read is None:
                    return
                if read.refusal:
                    raise UserError(read.refusal)
                order = replace(order, skip=order.skip + 1)
                yield read
            status = process.wait()
        finally:
            process.kill()
            process.communicate()
        if status >= 0:
            raise RuntimeError(f"the process that reads rows ended with status {status}, as it said above")
        deaths += 1
        if deaths > MOST_DEATHS:
            raise UserError(f"{', '.join(order.files)}: {deaths} rows ended the process that read them")
        order = replace(order, skip=order.skip + 1)
        yield RowRead(reason=TOO_LARGE)


def started(room: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-c", f"from {__name__} import serve_rows; serve_rows()", str(room)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _rows_read(process: subprocess.Popen[bytes], order: Order) -> Iterator[RowRead | None]:
    """The child's results until it is done, or dead."""
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        pickle.dump(order, process.stdin)
        process.stdin.flush()
    while True:
        try:
            yield pickle.load(process.stdout)
        except (EOFError, pickle.UnpicklingError):
            return


def reads(order: Order) -> Iterator[RowRead]:
    """In the child: the rows behind the first `order.skip`."""
    number = 0
    try:
        for name in order.files:
            reader: Reader | None = None
            for row in data_rows(Path(name)):
                number += 1
                if number <= order.skip:
                    continue
                try:
                    columns = row()
                    reader = reader or order.opener(order, columns, name)
                    read = reader(columns)
                except InvalidProblem as error:
                    read = RowRead(reason=str(error))
                except MemoryError:
                    read = RowRead(reason=TOO_LARGE)
                yield read
    except UserError as error:
        yield RowRead(refusal=str(error))
    except MemoryError:
        yield RowRead(refusal=f"{name}: takes more memory than reading has; split it, or write it as JSON lines")


def problem_reader(order: Order, columns: Row, where: str) -> Reader:
    """Reads rows of programming problems in the named layout, or in the one that the first row's columns indicate."""
    layout = data_layout_of(columns, where=where) if order.layout is None else layout_named(order.layout)
    return lambda row: with_small_tests(layout.read(row), order)


def with_small_tests(problem: Problem, order: Order) -> RowRead:
    """The problem with its first tests that are small enough."""
    tests = tuple(test for test in problem.tests if _size_of(test) <= order.max_test_chars)[: order.max_tests]
    if not tests:
        return RowRead(reason=NO_TEST)
    return RowRead(found=replace(problem, tests=tests), tests_left_out=len(problem.tests) - len(tests))


def _size_of(test: Test) -> int:
    if isinstance(test, StdioTest):
        return len(test.input) + len(test.output)
    return len(repr(test))


def limit_memory(room: int) -> None:
    """Limit this process to `room` more bytes of address space; does nothing if the system does not report its size."""
    with contextlib.suppress(OSError, ValueError):
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + room, taken + room))


def serve_rows() -> None:
    """The main loop of the child."""
    order: Order = pickle.load(sys.stdin.buffer)
    largest = max(map(os.path.getsize, order.files), default=0)
    limit_memory(int(sys.argv[1]) + ROOM_PER_BYTE * largest)
    for read in reads(order):
        pickle.dump(read, sys.stdout.buffer)
        sys.stdout.buffer.flush()  # the parent counts finished rows
    pickle.dump(None, sys.stdout.buffer)
    sys.stdout.buffer.flush()
