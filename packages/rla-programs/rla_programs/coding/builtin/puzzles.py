"""The parts of a built-in problem: its inputs, its question, correct code and wrong code.

A *template* is a function of parameters that returns a `Puzzle`. A puzzle is written twice: as text (a reference
solution and plausible wrong ones, `Code`) and as a function of ours (`answer`) that computes the expected values, so
text is never executed to make a task. The same puzzle is a problem of either kind, `stdio` or `function`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

Value = Any  # int, str, or a list of these


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One input: its name, how the statement and the code read it, and how values are drawn."""

    name: str
    words: str
    code: str
    draw: Callable[[random.Random], Value]
    line: Callable[[Value], str]
    plain: tuple[Value, ...]  # values that are easily worked out by hand, among the first tests


@dataclass(frozen=True, slots=True)
class Code:
    """Statements that compute, then the expression that is the answer."""

    result: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    """`task` completes "Print ..." and "returns ..."; `many`: the answer is a list, printed with spaces between."""

    reads: tuple[Read, ...]
    task: str
    code: Code
    answer: Callable[..., Value]
    wrong: tuple[Code, ...]
    many: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A family of puzzles: one for each entry of `over`."""

    name: str
    level: int
    over: tuple[tuple[Any, ...], ...]
    make: Callable[..., Puzzle]


@dataclass(slots=True)
class Catalogue:
    """Templates of one file, in the order of their definition."""

    templates: list[Template] = field(default_factory=list)

    def add(self, level: int, over: Iterable[Any]) -> Callable[[Callable[..., Puzzle]], Callable[..., Puzzle]]:
        """A decorator: the function's name is the template's, `over` its parameters (single ones need no tuple)."""
        entries = tuple(entry if isinstance(entry, tuple) else (entry,) for entry in over)

        def register(make: Callable[..., Puzzle]) -> Callable[..., Puzzle]:
            self.templates.append(Template(name=make.__name__, level=level, over=entries, make=make))
            return make

        return register


def integer(name: str, low: int, high: int) -> Read:
    """An integer on a line of its own."""
    plain = tuple(value for value in (0, 1, 2, 10) if low <= value <= high)
    return Read(
        name=name,
        words=f"an integer {name}",
        code=f"{name} = int(input())",
        draw=lambda rng: rng.randint(low, high),
        line=str,
        plain=plain or (low,),
    )


def integers(name: str, *, low: int = -9, high: int = 20, shortest: int = 1, longest: int = 8) -> Read:
    """Integers on one line; with `shortest=0` the line may be empty."""
    simple = ([], [1], [1, 2, 3]) if shortest <= 3 else (list(range(1, shortest + 1)),)
    return Read(
        name=name,
        words=f"a list of integers {name}",
        code=f"{name} = list(map(int, input().split()))",
        draw=lambda rng: [rng.randint(low, high) for _ in range(rng.randint(shortest, longest))],
        line=lambda values: " ".join(map(str, values)),
        plain=tuple(values for values in simple if len(values) >= shortest),
    )


def word(name: str, *, letters: str = "abcde", shortest: int = 1, longest: int = 8) -> Read:
    """Letters on one line."""
    return Read(
        name=name,
        words=f"a string {name}",
        code=f"{name} = input()",
        draw=lambda rng: "".join(rng.choice(letters) for _ in range(rng.randint(shortest, longest))),
        line=str,
        plain=(letters[0] * shortest, (letters[:3] * shortest)[: max(3, shortest)]),
    )


def words(name: str, *, letters: str = "abcd", shortest: int = 1, longest: int = 6) -> Read:
    """Words on one line, of one to six letters."""
    return Read(
        name=name,
        words=f"a list of words {name}",
        code=f"{name} = input().split()",
        draw=lambda rng: [
            "".join(rng.choice(letters) for _ in range(rng.randint(1, 6)))
            for _ in range(rng.randint(shortest, longest))
        ],
        line=" ".join,
        plain=(["a"], ["ab", "c"]),
    )


def statement(puzzle: Puzzle, *, function: bool) -> str:
    """The problem in one or two sentences."""
    given = _listed([read.words for read in puzzle.reads])
    if function:
        names = ", ".join(read.name for read in puzzle.reads)
        return f"Write a function f({names}) that gets {given} and returns {puzzle.task}."
    ending = ", separated by spaces" if puzzle.many else ""
    return f"Read {given}. Print {puzzle.task}{ending}."


def program(puzzle: Puzzle, code: Code, *, function: bool) -> str:
    """A complete program around `code`."""
    if function:
        body = [*code.lines, f"return {code.result}"]
        names = ", ".join(read.name for read in puzzle.reads)
        return "\n".join([f"def f({names}):", *(f"    {line}" for line in body)])
    shown = f"*{code.result}" if puzzle.many else code.result
    return "\n".join([*(read.code for read in puzzle.reads), *code.lines, f"print({shown})"])


def inputs(puzzle: Puzzle, rng: random.Random, *, count: int) -> list[tuple[Value, ...]]:
    """Up to `count` different inputs: two that are easy by hand, then random ones, with each answer equally often.

    With uniform draws, most inputs of "yes if n is divisible by 9" would be a no, and a program that always says no
    would be right.
    """
    found = [tuple(read.plain[min(turn, len(read.plain) - 1)] for read in puzzle.reads) for turn in range(2)]
    drawn = [tuple(read.draw(rng) for read in puzzle.reads) for _ in range(20 * count)]
    by_answer: dict[str, list[tuple[Value, ...]]] = {}
    for values in drawn:
        by_answer.setdefault(repr(puzzle.answer(*values)), []).append(values)
    turns = zip_longest(*by_answer.values())
    balanced = [values for turn in turns for values in turn if values is not None]
    unique = {repr(values): values for values in [*found, *balanced]}
    return list(unique.values())[:count]


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
