"""Levels 2 and 3: a condition decides."""

from __future__ import annotations

from itertools import product

from rla_programs.coding.builtin.puzzles import Catalogue, Code, Puzzle, integer

CATALOGUE = Catalogue()
N = integer("n", -20, 50)


@CATALOGUE.add(2, range(2, 12))
def divisible(k: int) -> Puzzle:
    return Puzzle(
        reads=(integer("n", 0, 40),),
        task=f"yes if n is divisible by {k}, else no",
        code=Code(f'"yes" if n % {k} == 0 else "no"'),
        answer=lambda n: "yes" if n % k == 0 else "no",
        wrong=(Code(f'"no" if n % {k} == 0 else "yes"'), Code('"yes"'), Code('"no"')),
    )


@CATALOGUE.add(2, range(3, 20))
def bigger(k: int) -> Puzzle:
    return Puzzle(
        reads=(integer("n", 0, 30),),
        task=f"big if n is bigger than {k}, else small",
        code=Code(f'"big" if n > {k} else "small"'),
        answer=lambda n: "big" if n > k else "small",
        wrong=(Code(f'"small" if n > {k} else "big"'), Code('"big"'), Code('"small"')),
    )


@CATALOGUE.add(3, product(range(2, 7), range(1, 5)))
def parity(a: int, b: int) -> Puzzle:
    return Puzzle(
        reads=(N,),
        task=f"n times {a} if n is even, else n minus {b}",
        code=Code(f"n * {a} if n % 2 == 0 else n - {b}"),
        answer=lambda n: n * a if n % 2 == 0 else n - b,
        wrong=(Code(f"n * {a} if n % 2 == 1 else n - {b}"), Code(f"n * {a}"), Code(f"n - {b}")),
    )


@CATALOGUE.add(3, product((5, 10, 15), range(2, 5), range(1, 4)))
def piecewise(k: int, a: int, b: int) -> Puzzle:
    return Puzzle(
        reads=(N,),
        task=f"n times {a} if n is smaller than {k}, else n plus {b}",
        code=Code(f"n * {a} if n < {k} else n + {b}"),
        answer=lambda n: n * a if n < k else n + b,
        wrong=(Code(f"n * {a} if n > {k} else n + {b}"), Code(f"n * {a}"), Code(f"n + {b}")),
    )


@CATALOGUE.add(3, [(k, m) for k, m in product(range(2, 6), range(3, 8)) if m % k and k % m])
def two_names(k: int, m: int) -> Puzzle:
    return Puzzle(
        reads=(integer("n", 0, 60),),
        task=f"both if {k} and {m} divide n, one if only one of them does, else none",
        code=Code('["none", "one", "both"][t]', (f"t = (n % {k} == 0) + (n % {m} == 0)",)),
        answer=lambda n: ["none", "one", "both"][(n % k == 0) + (n % m == 0)],
        wrong=(
            Code(f'"both" if n % {k} == 0 else "none"'),
            Code('["both", "one", "none"][t]', (f"t = (n % {k} == 0) + (n % {m} == 0)",)),
        ),
    )


@CATALOGUE.add(3, range(2, 14))
def middle(k: int) -> Puzzle:
    return Puzzle(
        reads=(integer("x", -9, 20), integer("y", -9, 20)),
        task=f"the middle one of x, y and {k} when they are sorted",
        code=Code(f"sorted([x, y, {k}])[1]"),
        answer=lambda x, y: sorted([x, y, k])[1],
        wrong=(Code(f"max(x, y, {k})"), Code(f"min(x, y, {k})"), Code(f"{k}")),
    )
