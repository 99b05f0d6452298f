"""From templates to problems: the split by parameters, the draw, the tests.

    held out   a fifth of each template's parameters, at least one if there are three; the same for every seed
    draw       in turn over the requested levels, each time from the template drawn least, without repetition
    tests      easy inputs first, then random ones; expected values by the template's own function

A held-out problem has other parameters than every training problem of its template. Values are checked to be JSON when
the problem is made.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from rla.errors import UserError
from rla.seeds import derive
from rla_programs.coding.builtin import algorithms, arith, choices, lists, loops, strings
from rla_programs.coding.builtin.puzzles import Puzzle, Template, inputs, program, statement
from rla_programs.coding.data.checkers import Checker, CheckerKind
from rla_programs.coding.data.problems import FUNCTION, STDIO, CallTest, Problem, StdioTest, Test

FILES = (arith, choices, strings, lists, loops, algorithms)
LEVELS = (1, 2, 3, 4, 5)
KINDS = (STDIO, FUNCTION)
NAME = "f"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A problem, its template, and plausible wrong programs."""

    problem: Problem
    template: str
    parameters: tuple[Any, ...]
    wrong: tuple[str, ...]


@cache
def templates() -> tuple[Template, ...]:
    """All templates, by level and then in the order of their definition."""
    found = [template for file in FILES for template in file.CATALOGUE.templates]
    return tuple(sorted(found, key=lambda template: template.level))


def available(template: Template, *, held_out: bool) -> list[tuple[Any, ...]]:
    """The parameters on one side of the split, in the template's order."""
    order = list(template.over)
    random.Random(derive("coding split", template.name)).shuffle(order)
    kept_back = set(order[: max(1, len(order) // 5)] if len(order) >= 3 else [])
    return [parameters for parameters in template.over if (parameters in kept_back) == held_out]


def drawn_problems(
    *,
    seed: int,
    count: int,
    tests: int = 8,
    levels: Sequence[int] = LEVELS,
    kinds: Sequence[str] = KINDS,
    held_out: bool = False,
) -> list[Drawn]:
    """`count` different problems (fewer if there are no more), balanced over levels and templates.

    Raises `UserError` for unknown levels or kinds.
    """
    if not levels or not set(levels) <= set(LEVELS) or not kinds or not set(kinds) <= set(KINDS):
        raise UserError(
            f"built-in problems have the levels {list(LEVELS)} and the kinds {list(KINDS)}; choose from them "
            "(tasks.size, tasks.kinds)"
        )
    rng = random.Random(derive("coding problems", "held out" if held_out else "training", seed))
    left = {template: _entries(rng, template, kinds, held_out) for template in templates() if template.level in levels}
    counts: Counter[str] = Counter()
    drawn: list[Drawn] = []
    while len(drawn) < count and any(left.values()):
        template = _next(rng, [template for template, entries in left.items() if entries], counts)
        parameters, kind = left[template].pop()
        counts.update([template.name, f"level {template.level}"])
        drawn.append(_drawn(template, parameters, kind, seed=seed, tests=tests))
    return drawn


def _entries(
    rng: random.Random, template: Template, kinds: Sequence[str], held_out: bool
) -> list[tuple[tuple[Any, ...], str]]:
    entries = [(parameters, kind) for parameters in available(template, held_out=held_out) for kind in kinds]
    rng.shuffle(entries)
    return entries


def _next(rng: random.Random, candidates: list[Template], counts: Counter[str]) -> Template:
    """One of the templates drawn least, in the level drawn least."""
    level = min((template.level for template in candidates), key=lambda level: (counts[f"level {level}"], level))
    of_level = [template for template in candidates if template.level == level]
    least = min(counts[template.name] for template in of_level)
    return rng.choice([template for template in of_level if counts[template.name] == least])


def _drawn(template: Template, parameters: tuple[Any, ...], kind: str, *, seed: int, tests: int) -> Drawn:
    puzzle = template.make(*parameters)
    return Drawn(
        problem=problem_drawn(template, parameters, kind, seed=seed, tests=tests),
        template=template.name,
        parameters=parameters,
        wrong=tuple(program(puzzle, code, function=kind == FUNCTION) for code in puzzle.wrong),
    )


def problem_drawn(template: Template, parameters: tuple[Any, ...], kind: str, *, seed: int, tests: int) -> Problem:
    """The problem with these parameters; equal arguments give equal tests."""
    puzzle, function = template.make(*parameters), kind == FUNCTION
    rng = random.Random(derive("coding tests", template.name, repr(parameters), seed))
    given = inputs(puzzle, rng, count=tests)
    return Problem(
        statement=statement(puzzle, function=function),
        tests=tuple(test_of(puzzle, values, function=function) for values in given),
        checker=Checker(kind=CheckerKind.VALUES if function else CheckerKind.TOKENS),
        function=NAME if function else None,
        time_limit_s=2.0,
        solution=program(puzzle, puzzle.code, function=function),
        difficulty=template.level,
        source=f"builtin/{template.name}",
    )


def test_of(puzzle: Puzzle, values: tuple[Any, ...], *, function: bool) -> Test:
    """The test with these inputs; the template's own function computes the expected value."""
    expected = puzzle.answer(*values)
    if function:
        return CallTest(values, expected)
    given = "".join(f"{read.line(value)}\n" for read, value in zip(puzzle.reads, values, strict=True))
    printed = " ".join(map(str, expected)) if puzzle.many else str(expected)
    return StdioTest(given, f"{printed}\n")
