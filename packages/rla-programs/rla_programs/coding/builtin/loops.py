"""Levels 3 and 4: loops over numbers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from rla_programs.coding.builtin.puzzles import Catalogue, Code, Puzzle, integer

CATALOGUE = Catalogue()


@CATALOGUE.add(3, range(2, 10))
def multiples(k: int) -> Puzzle:
    return Puzzle(
        reads=(replace(integer("n", 0, 60), plain=(0, 2 * k)),),  # programs go wrong at the end of the range
        task=f"the sum of all multiples of {k} from 0 to n, n included",
        code=Code(f"sum(range(0, n + 1, {k}))"),
        answer=lambda n: sum(range(0, n + 1, k)),
        wrong=(Code(f"sum(range(0, n, {k}))"), Code(f"len(range(0, n + 1, {k}))"), Code("sum(range(n + 1))")),
    )


@CATALOGUE.add(3, range(2, 10))
def countdown(k: int) -> Puzzle:
    def code(test: str) -> Code:
        return Code("b", ("b = []", f"while {test}:", "    b.append(n)", f"    n -= {k}"))

    return Puzzle(
        reads=(integer("n", 1, 40),),
        task=f"n and what is left after taking {k} away again and again, as long as it is above 0",
        code=code("n > 0"),
        answer=lambda n: list(range(n, 0, -k)),
        wrong=(code(f"n > {k}"), code(f"n > -{k}"), Code("list(range(n, 0, -1))")),
        many=True,
    )


@CATALOGUE.add(3, range(2, 10))
def halvings(k: int) -> Puzzle:
    def answer(n: int) -> int:
        steps = 0
        while n > 0:
            n, steps = n // k, steps + 1
        return steps

    def code(test: str) -> Code:
        return Code("r", ("r = 0", f"while {test}:", f"    n //= {k}", "    r += 1"))

    return Puzzle(
        reads=(integer("n", 0, 600),),
        task=f"how many times n can be divided by {k}, rounding down, until it is 0",
        code=code("n > 0"),
        answer=answer,
        wrong=(code("n > 1"), code(f"n % {k}"), Code(f"n // {k}")),
    )


@CATALOGUE.add(4, range(2, 10))
def digit_sum(base: int) -> Puzzle:
    def answer(n: int) -> int:
        return 0 if n == 0 else n % base + answer(n // base)

    def code(step: str, stop: str = "n") -> Code:
        return Code("r", ("r = 0", f"while {stop}:", f"    r += {step}", f"    n //= {base}"))

    return Puzzle(
        reads=(integer("n", 0, 999),),
        task=f"the sum of the digits of n in base {base}",
        code=code(f"n % {base}"),
        answer=answer,
        wrong=(code("1"), code(f"n % {base}", f"n >= {base}"), Code("sum(map(int, str(n)))")),
    )


@CATALOGUE.add(4, [(a, b) for a, b in product(range(1, 4), repeat=2)])
def recurrence(a: int, b: int) -> Puzzle:
    def answer(n: int) -> int:
        x, y = 0, 1
        for _ in range(n):
            x, y = y, (a * y + b * x) % 100
        return x

    def code(step: str, result: str = "x") -> Code:
        return Code(result, ("x, y = 0, 1", "for i in range(n):", f"    x, y = y, ({step}) % 100"))

    return Puzzle(
        reads=(integer("n", 0, 25),),
        task=f"f(n) modulo 100 where f(0) = 0, f(1) = 1 and f(i) = {a} * f(i - 1) + {b} * f(i - 2)",
        code=code(f"{a} * y + {b} * x"),
        answer=answer,
        wrong=(
            code(f"{a} * y + {b} * x", "y"),
            code(f"{a + 1} * y + {b} * x"),
            code(f"{a} * y - {b} * x"),
        ),
    )


@CATALOGUE.add(4, range(1, 10))
def with_digit(d: int) -> Puzzle:
    return Puzzle(
        reads=(integer("n", 1, 300),),
        task=f"how many of the numbers from 1 to n contain the digit {d}",
        code=Code(f'sum("{d}" in str(i) for i in range(1, n + 1))'),
        answer=lambda n: sum(str(d) in str(i) for i in range(1, n + 1)),
        wrong=(
            Code(f'sum(str(i).count("{d}") for i in range(1, n + 1))'),
            Code(f"sum(i % 10 == {d} for i in range(1, n + 1))"),
            Code(f'str(n).count("{d}")'),
        ),
    )
