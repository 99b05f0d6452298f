"""From a built-in problem back to the template that it was drawn from, and on to its relatives.

A statement identifies its puzzle: no two of them are alike (a test proves it). No other part of a problem is trusted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from rla_programs.coding.builtin.drawing import FILES, NAME, available, problem_drawn, templates, test_of
from rla_programs.coding.builtin.puzzles import Puzzle, Template, inputs, program, statement
from rla_programs.coding.data.problems import FUNCTION, STDIO, Problem, Test


@dataclass(frozen=True, slots=True)
class Entry:
    """One built-in problem: its template, its parameters and its kind."""

    template: Template
    parameters: tuple[Any, ...]
    function: bool

    @property
    def puzzle(self) -> Puzzle:
        return self.template.make(*self.parameters)

    def problem(self, *, seed: int, tests: int) -> Problem:
        kind = FUNCTION if self.function else STDIO
        return problem_drawn(self.template, self.parameters, kind, seed=seed, tests=tests)

    def wrong(self) -> list[str]:
        """Plausible wrong programs."""
        puzzle = self.puzzle
        return [program(puzzle, code, function=self.function) for code in puzzle.wrong]

    def drawn(self, rng: random.Random, *, count: int) -> list[Test]:
        """`count` tests with expected values of ours; fewer if there are not enough inputs."""
        puzzle = self.puzzle
        return [test_of(puzzle, values, function=self.function) for values in inputs(puzzle, rng, count=count)]


def entry_of(problem: Problem) -> Entry | None:
    """The entry that a problem was drawn from; None if it is not one of ours."""
    found = _index().get(problem.statement)
    return found if found is not None and found.function == (problem.function == NAME) else None


def training_entries() -> Iterator[Entry]:
    """All built-in problems that are not held out."""
    for template in templates():
        for parameters in available(template, held_out=False):
            yield from (Entry(template, parameters, function) for function in (False, True))


def relatives(entry: Entry, *, step: int) -> list[Entry]:
    """Training problems one level above or below (`step`: 1 or -1), of the same kind, and of the same family if it has
    any.

    A family is the file of the templates: expressions, choices, strings, lists, loops, algorithms.
    """
    level = entry.template.level + step
    near = [other for other in training_entries() if other.template.level == level and other.function == entry.function]
    family = _family(entry.template)
    return [other for other in near if _family(other.template) == family] or near


@cache
def _index() -> dict[str, Entry]:
    found = {}
    for template in templates():
        for parameters in template.over:
            for function in (False, True):
                entry = Entry(template, parameters, function)
                found[statement(entry.puzzle, function=function)] = entry
    return found


@cache
def _families() -> dict[str, str]:
    return {template.name: file.__name__ for file in FILES for template in file.CATALOGUE.templates}


def _family(template: Template) -> str:
    return _families()[template.name]
