"""Rows of the task pool: built-in problems, or those of a data set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rla.store.records import Task
from rla_programs.coding.builtin import drawn_problems
from rla_programs.coding.builtin.drawing import KINDS, LEVELS
from rla_programs.coding.data.problems import task_from_problem
from rla_programs.coding.importing import import_problems
from rla_programs.coding.importing.importer import MAX_TEST_CHARS, MAX_TESTS


def builtin_problems(
    *,
    seed: int,
    count: int,
    split: str = "train",
    held_out: bool = False,
    tests: int = 8,
    levels: Sequence[int] = LEVELS,
    kinds: Sequence[str] = KINDS,
) -> list[Task]:
    """`count` built-in problems (fewer if there are no more) as tasks of `split`.

    Held-out problems have their own parameters, so they are not in training for any seed. Raises `UserError` for
    unknown levels or kinds.
    """
    drawn = drawn_problems(seed=seed, count=count, tests=tests, levels=levels, kinds=kinds, held_out=held_out)
    return [task_from_problem(found.problem, split=split) for found in drawn]


def imported_problems(
    source: str | Path,
    *,
    split: str,
    layout: str | None = None,
    limit: int | None = None,
    max_tests: int = MAX_TESTS,
    max_test_chars: int = MAX_TEST_CHARS,
    tell: Callable[[str], None] | None = None,
) -> list[Task]:
    """The problems of a file, a folder's split or `hub:owner/name` as tasks; `tell` gets one line about skipped rows.

    Raises `UserError` as `import_problems` does.
    """
    found = import_problems(
        source, split=split, layout=layout, limit=limit, max_tests=max_tests, max_test_chars=max_test_chars
    )
    if tell is not None:
        tell(f"{source}: {found.summary()}")
    return [task_from_problem(problem, split=split) for problem in found.problems]
