"""Levels 1 and 2: one expression of one or two integers."""

from __future__ import annotations

from itertools import product

from rla_programs.coding.builtin.puzzles import Catalogue, Code, Puzzle, integer

CATALOGUE = Catalogue()
N = integer("n", -20, 50)
COUNT = integer("n", 0, 60)


@CATALOGUE.add(1, product(range(2, 8), range(1, 7)))
def affine(a: int, b: int) -> Puzzle:
    return Puzzle(
        reads=(N,),
        task=f"n times {a} plus {b}",
        code=Code(f"n * {a} + {b}"),
        answer=lambda n: n * a + b,
        wrong=(Code(f"n * {a} - {b}"), Code(f"n * ({a} + {b})"), Code(f"n + {a} + {b}")),
    )


@CATALOGUE.add(1, range(2, 20))
def minus(k: int) -> Puzzle:
    return Puzzle(
        reads=(N,),
        task=f"n minus {k}",
        code=Code(f"n - {k}"),
        answer=lambda n: n - k,
        wrong=(Code(f"{k} - n"), Code(f"n + {k}")),
    )


@CATALOGUE.add(1, range(2, 12))
def remainder(k: int) -> Puzzle:
    return Puzzle(
        reads=(COUNT,),
        task=f"the remainder of n divided by {k}",
        code=Code(f"n % {k}"),
        answer=lambda n: n % k,
        wrong=(Code(f"n // {k}"), Code(f"{k} - n % {k}"), Code(f"n % {k + 1}")),
    )


@CATALOGUE.add(1, range(2, 12))
def quotient(k: int) -> Puzzle:
    return Puzzle(
        reads=(COUNT,),
        task=f"n divided by {k}, rounded down",
        code=Code(f"n // {k}"),
        answer=lambda n: n // k,
        wrong=(Code(f"n % {k}"), Code(f"n // {k} + 1"), Code(f"n / {k}")),
    )


@CATALOGUE.add(1, range(1, 13))
def square(b: int) -> Puzzle:
    return Puzzle(
        reads=(N,),
        task=f"n times n plus {b}",
        code=Code(f"n * n + {b}"),
        answer=lambda n: n * n + b,
        wrong=(Code(f"n * 2 + {b}"), Code(f"n * (n + {b})"), Code("n * n")),
    )


@CATALOGUE.add(1, [(a, b) for a, b in product(range(2, 7), repeat=2) if a != b])
def weighted(a: int, b: int) -> Puzzle:
    return Puzzle(
        reads=(integer("x", -9, 20), integer("y", -9, 20)),
        task=f"{a} times x plus {b} times y",
        code=Code(f"{a} * x + {b} * y"),
        answer=lambda x, y: a * x + b * y,
        wrong=(Code(f"{b} * x + {a} * y"), Code(f"{a} * x - {b} * y"), Code(f"{a} * (x + y)")),
    )


@CATALOGUE.add(2, range(3, 18))
def distance(k: int) -> Puzzle:
    return Puzzle(
        reads=(N,),
        task=f"the distance between n and {k}",
        code=Code(f"abs(n - {k})"),
        answer=lambda n: abs(n - k),
        wrong=(Code(f"n - {k}"), Code(f"{k} - n"), Code(f"abs(n) - {k}")),
    )


@CATALOGUE.add(2, range(3, 18))
def at_most(k: int) -> Puzzle:
    return Puzzle(
        reads=(N,),
        task=f"the smaller of n and {k}",
        code=Code(f"min(n, {k})"),
        answer=lambda n: min(n, k),
        wrong=(Code(f"max(n, {k})"), Code("n"), Code(f"{k}")),
    )


@CATALOGUE.add(2, [(low, low + width) for low, width in product(range(-3, 4), (5, 8, 12))])
def clamp(low: int, high: int) -> Puzzle:
    return Puzzle(
        reads=(N,),
        task=f"n, but {low} if n is smaller than {low} and {high} if n is bigger than {high}",
        code=Code(f"max({low}, min(n, {high}))"),
        answer=lambda n: max(low, min(n, high)),
        wrong=(Code(f"min({low}, max(n, {high}))"), Code(f"min(n, {high})"), Code(f"max({low}, n)")),
    )


@CATALOGUE.add(2, range(2, 8))
def power(base: int) -> Puzzle:
    return Puzzle(
        reads=(integer("n", 0, 12),),
        task=f"{base} to the power of n",
        code=Code(f"{base} ** n"),
        answer=lambda n: base**n,
        wrong=(Code(f"{base} * n"), Code(f"n ** {base}")),
    )
