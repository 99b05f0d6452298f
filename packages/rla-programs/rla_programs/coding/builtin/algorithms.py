"""Level 5: small algorithms."""

from __future__ import annotations

from itertools import combinations

from rla_programs.coding.builtin.puzzles import Catalogue, Code, Puzzle, integer, integers

CATALOGUE = Catalogue()


@CATALOGUE.add(5, range(2, 6))
def window(k: int) -> Puzzle:
    def code(stop: str, best: str = "max") -> Code:
        return Code(f"{best}(sum(a[i:i + {k}]) for i in range({stop}))")

    return Puzzle(
        reads=(integers("a", shortest=k + 4, longest=k + 8),),
        task=f"the largest sum of {k} numbers in a row in a",
        code=code(f"len(a) - {k - 1}"),
        answer=lambda a: max(sum(a[i : i + k]) for i in range(len(a) - k + 1)),
        wrong=(code(f"len(a) - {k - 1}", "min"), code("1"), Code(f"sum(sorted(a)[-{k}:])")),
    )


@CATALOGUE.add(5, combinations(range(2, 7), 2))
def coins(a: int, b: int) -> Puzzle:
    def answer(n: int) -> int:
        return sum((n - b * many) // a + 1 for many in range(n // b + 1))

    def code(faces: str, order: str = "i, n + 1") -> Code:
        lines = (
            "w = [1] + [0] * n",
            f"for i in {faces}:",
            f"    for j in range({order}):",
            "        w[j] += w[j - i]",
        )
        return Code("w[n]", lines)

    return Puzzle(
        reads=(integer("n", 0, 40),),
        task=f"the number of ways to pay n with coins of 1, {a} and {b}, whatever their order",
        code=code(f"[1, {a}, {b}]"),
        answer=answer,
        wrong=(code(f"[{a}, {b}]"), code(f"[1, {a}]"), code(f"[1, {b}]")),
    )


@CATALOGUE.add(5, combinations(range(1, 6), 2))
def stairs(a: int, b: int) -> Puzzle:
    def answer(n: int) -> int:
        ways = [1]
        for i in range(1, n + 1):
            ways.append(sum(ways[i - step] for step in (a, b) if step <= i))
        return ways[n]

    def code(steps: str, first: str = "1") -> Code:
        lines = (
            f"w = [{first}]",
            "for i in range(1, n + 1):",
            f"    w.append(sum(w[i - k] for k in {steps} if k <= i))",
        )
        return Code("w[n]", lines)

    return Puzzle(
        reads=(integer("n", 0, 24),),
        task=f"the number of ways to climb n stairs with steps of {a} and {b}, where order matters",
        code=code(f"[{a}, {b}]"),
        answer=answer,
        wrong=(code(f"[{a}]"), code(f"[{a}, {b + 1}]"), code(f"[{a}, {b}]", "0")),
    )


@CATALOGUE.add(5, range(2, 10))
def circle(k: int) -> Puzzle:
    def answer(n: int) -> int:
        left, at = list(range(1, n + 1)), 0
        while len(left) > 1:
            at = (at + k - 1) % len(left)
            left.pop(at)
        return left[0]

    def code(result: str, by: int, first: int = 2) -> Code:
        return Code(result, ("r = 0", f"for i in range({first}, n + 1):", f"    r = (r + {by}) % i"))

    return Puzzle(
        reads=(integer("n", 1, 40),),
        task=f"who of n people, numbered from 1 in a circle, is left when every {k}th is taken out until one remains",
        code=code("r + 1", k),
        answer=answer,
        wrong=(code("r", k), code("r + 1", k - 1), Code(f"n % {k} + 1")),
    )


@CATALOGUE.add(5, range(1, 7))
def rising(k: int) -> Puzzle:
    def answer(a: list[int]) -> int:
        best: list[int] = []
        for i, x in enumerate(a):
            best.append(1 + max((best[j] for j in range(i) if a[j] + k <= x), default=0))
        return max(best)

    def code(test: str, result: str = "max(b)") -> Code:
        lines = (
            "b = []",
            "for i in range(len(a)):",
            f"    b.append(1 + max([b[j] for j in range(i) if {test}] + [0]))",
        )
        return Code(result, lines)

    return Puzzle(
        reads=(integers("a", shortest=8, longest=14),),
        task=f"the most numbers that can be kept of a, in order, so that each is at least {k} above the one before",
        code=code(f"a[j] + {k} <= a[i]"),
        answer=answer,
        wrong=(
            code(f"a[j] + {k} <= a[i]", "b[-1]"),
            code(f"a[j] - {k} >= a[i]"),
            code(f"a[j] + {k + 3} <= a[i]"),
        ),
    )


@CATALOGUE.add(5, range(1, 5))
def apart(k: int) -> Puzzle:
    def answer(a: list[int]) -> int:
        best = [0]
        for i, x in enumerate(a):
            best.append(max(best[-1], x + best[max(0, i - k)]))
        return best[-1]

    def code(earlier: str) -> Code:
        return Code("b[-1]", ("b = [0]", "for i, x in enumerate(a):", f"    b.append(max(b[-1], x + {earlier}))"))

    return Puzzle(
        reads=(integers("a", low=-5, high=20, shortest=6, longest=12),),
        task=f"the largest sum of numbers of a, maybe of none, with at least {k} positions between any two of them",
        code=code(f"b[max(0, i - {k})]"),
        answer=answer,
        wrong=(code("b[i]"), Code("max(a)"), code(f"b[max(0, i - {k + 1})]")),
    )


@CATALOGUE.add(5, [(k, r) for k in range(3, 8) for r in range(1, k, 2)])
def primes(k: int, r: int) -> Puzzle:
    def answer(n: int) -> int:
        return sum(i % k == r and all(i % j for j in range(2, i)) for i in range(2, n + 1))

    def code(first: int, keep: str, stop: str = "n + 1") -> Code:
        return Code(f"sum({keep}all(i % j for j in range(2, i)) for i in range({first}, {stop}))")

    return Puzzle(
        reads=(integer("n", 1, 150),),
        task=f"the number of primes up to n, n included, that leave the remainder {r} when divided by {k}",
        code=code(2, f"i % {k} == {r} and "),
        answer=answer,
        wrong=(code(2, ""), code(2, f"i % {k} != {r} and "), Code(f"sum(i % {k} == {r} for i in range(2, n + 1))")),
    )
