"""Built-in problems: enough of them, graded, right, telling right from wrong, and split by parameters."""

from __future__ import annotations

import io
import tokenize
from collections import Counter
from functools import cache

import pytest
from rla_programs.coding.builtin import Drawn, available, drawn_problems, templates
from rla_programs.coding.data.problems import FUNCTION, STDIO, StdioTest, problem_digest

from programs_tests.coding.running import many, passes
from rla.errors import UserError


@cache
def side(*, held_out: bool) -> tuple[Drawn, ...]:
    return tuple(drawn_problems(seed=0, count=10_000, held_out=held_out))


def everything() -> tuple[Drawn, ...]:
    """All problems that there are: training first, then held out."""
    return side(held_out=False) + side(held_out=True)


def tokens(source: str) -> int:
    silent = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    return sum(token.type not in silent for token in tokenize.generate_tokens(io.StringIO(source).readline))


def test_a_problem_as_it_reads() -> None:
    found = {(d.template, d.parameters, d.problem.kind): d.problem for d in everything()}
    stdio, function = found["affine", (3, 2), STDIO], found["affine", (3, 2), FUNCTION]
    assert stdio.statement == "Read an integer n. Print n times 3 plus 2."
    assert stdio.solution == "n = int(input())\nprint(n * 3 + 2)"
    assert stdio.tests[:2] == (StdioTest("0\n", "2\n"), StdioTest("1\n", "5\n"))
    assert function.statement == "Write a function f(n) that gets an integer n and returns n times 3 plus 2."
    assert function.solution == "def f(n):\n    return n * 3 + 2"
    assert [(t.arguments, t.expected) for t in function.tests[:2]] == [((0,), 2), ((1,), 5)]  # type: ignore[union-attr]
    listed = found["scaled", (4,), STDIO]
    assert listed.statement == "Read a list of integers a. Print each number of a times 4, separated by spaces."
    assert listed.solution == "a = list(map(int, input().split()))\nb = [x * 4 for x in a]\nprint(*b)"
    assert listed.tests[1] == StdioTest("1 2 3\n", "4 8 12\n")


def test_there_are_hundreds_of_different_ones_at_each_level() -> None:
    problems = [drawn.problem for drawn in everything()]
    assert (
        len({problem_digest(problem) for problem in problems}) == len({p.statement for p in problems}) == len(problems)
    )
    assert len(problems) >= 200
    by_level = Counter(problem.difficulty for problem in problems)
    assert set(by_level) == {1, 2, 3, 4, 5} and min(by_level.values()) >= 40
    assert len(templates()) >= 40


def test_every_solution_passes_and_wrong_programs_fail() -> None:
    drawn = everything()
    jobs = [(d.problem, str(p), d.problem.tests) for d in drawn for p in (d.problem.solution, *d.wrong)]
    rows = iter(many(jobs))
    caught = wrong = 0
    for d in drawn:
        verdicts = [
            [passes(d.problem, test, answer) for test, answer in zip(d.problem.tests, next(rows), strict=True)]
            for _ in (d.problem.solution, *d.wrong)
        ]
        assert all(verdicts[0]), f"{d.template} {d.parameters} {d.problem.kind}: the solution is wrong"
        assert not all(map(all, verdicts[1:])), f"{d.template} {d.parameters}: the tests let all wrong programs through"
        caught += sum(not all(row) for row in verdicts[1:])
        wrong += len(d.wrong)
    assert wrong >= 2 * len(drawn)
    assert caught / wrong > 0.995


def test_statements_and_easy_programs_are_short() -> None:
    for drawn in everything():
        problem = drawn.problem
        assert len(problem.statement.split()) <= 40, problem.statement
        assert tokens(str(problem.solution)) <= {1: 30, 2: 30, 3: 40, 4: 60, 5: 80}[problem.difficulty or 0]
        assert 4 <= len(problem.tests) <= 8


def test_the_same_seed_gives_the_same_problems_and_another_other_tests() -> None:
    first, again, other = (drawn_problems(seed=seed, count=40) for seed in (1, 1, 2))
    assert first == again
    assert {problem_digest(d.problem) for d in first}.isdisjoint(problem_digest(d.problem) for d in other)


def test_held_out_parameters_are_nobody_elses() -> None:
    training = {(d.template, d.parameters) for d in side(held_out=False)}
    others = drawn_problems(seed=5, count=50, held_out=True)
    assert len(side(held_out=True)) >= 100
    assert not any((d.template, d.parameters) in training for d in [*side(held_out=True), *others])
    for template in templates():
        assert set(available(template, held_out=False)) | set(available(template, held_out=True)) == set(template.over)


def test_levels_kinds_and_templates_are_balanced() -> None:
    drawn = drawn_problems(seed=3, count=60, levels=(1, 2, 3))
    assert Counter(d.problem.difficulty for d in drawn) == {1: 20, 2: 20, 3: 20}
    assert max(Counter(d.template for d in drawn).values()) <= 3
    assert {d.problem.kind for d in drawn} == {STDIO, FUNCTION}
    assert {d.problem.kind for d in drawn_problems(seed=3, count=10, kinds=[STDIO])} == {STDIO}


def test_unknown_levels_and_kinds_are_refused() -> None:
    with pytest.raises(UserError, match="levels"):
        drawn_problems(seed=0, count=1, levels=(6,))
    with pytest.raises(UserError, match="kinds"):
        drawn_problems(seed=0, count=1, kinds=["interactive"])
