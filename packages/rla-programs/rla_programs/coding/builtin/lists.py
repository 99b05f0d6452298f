"""Levels 2 to 4: one list of integers."""

from __future__ import annotations

from itertools import accumulate, combinations

from rla_programs.coding.builtin.puzzles import Catalogue, Code, Puzzle, integers

CATALOGUE = Catalogue()
A = integers("a")
MANY = integers("a", shortest=6, longest=10)
MAYBE_EMPTY = integers("a", shortest=0, longest=8)


@CATALOGUE.add(2, range(1, 7))
def pick(k: int) -> Puzzle:
    return Puzzle(
        reads=(MANY,),
        task=f"the number of a at position {k}, counted from 1",
        code=Code(f"a[{k - 1}]"),
        answer=lambda a: a[k - 1],
        wrong=(Code(f"a[{k % 6}]"), Code(f"a[-{k}]"), Code(f"sorted(a)[{k - 1}]")),
    )


@CATALOGUE.add(2, range(1, 16))
def total(k: int) -> Puzzle:
    return Puzzle(
        reads=(MAYBE_EMPTY,),
        task=f"the sum of a plus {k}",
        code=Code(f"sum(a) + {k}"),
        answer=lambda a: sum(a) + k,
        wrong=(Code("sum(a)"), Code(f"len(a) + {k}"), Code(f"sum(a) - {k}")),
    )


@CATALOGUE.add(2, range(2, 12))
def largest(k: int) -> Puzzle:
    return Puzzle(
        reads=(MANY,),
        task=f"the largest number of a times {k}",
        code=Code(f"max(a) * {k}"),
        answer=lambda a: max(a) * k,
        wrong=(Code(f"min(a) * {k}"), Code("max(a)"), Code(f"a[0] * {k}")),
    )


@CATALOGUE.add(3, range(-2, 12))
def count_over(k: int) -> Puzzle:
    return Puzzle(
        reads=(MAYBE_EMPTY,),
        task=f"how many numbers of a are bigger than {k}",
        code=Code(f"sum(x > {k} for x in a)"),
        answer=lambda a: sum(x > k for x in a),
        wrong=(Code(f"sum(x < {k} for x in a)"), Code("len(a)"), Code(f"sum(x for x in a if x > {k})")),
    )


@CATALOGUE.add(3, range(2, 8))
def sum_multiples(k: int) -> Puzzle:
    return Puzzle(
        reads=(MANY,),
        task=f"the sum of the numbers of a that are divisible by {k}",
        code=Code(f"sum(x for x in a if x % {k} == 0)"),
        answer=lambda a: sum(x for x in a if x % k == 0),
        wrong=(Code(f"sum(x for x in a if x % {k})"), Code("sum(a)"), Code(f"sum(x % {k} == 0 for x in a)")),
    )


@CATALOGUE.add(3, range(2, 10))
def scaled(k: int) -> Puzzle:
    return Puzzle(
        reads=(A,),
        task=f"each number of a times {k}",
        code=Code("b", (f"b = [x * {k} for x in a]",)),
        answer=lambda a: [x * k for x in a],
        wrong=(Code("b", (f"b = [x + {k} for x in a]",)), Code("b", (f"b = a * {k}",)), Code("a")),
        many=True,
    )


@CATALOGUE.add(3, range(2, 6))
def ranked(k: int) -> Puzzle:
    return Puzzle(
        reads=(MANY,),
        task=f"the number at position {k}, counted from 1, when a is sorted from the largest to the smallest",
        code=Code(f"sorted(a)[-{k}]"),
        answer=lambda a: sorted(a)[-k],
        wrong=(Code(f"sorted(a)[{k - 1}]"), Code(f"a[-{k}]"), Code("max(a)")),
    )


@CATALOGUE.add(3, range(1, 6))
def rotate(k: int) -> Puzzle:
    return Puzzle(
        reads=(MANY,),
        task=f"a with its first {k} numbers moved to the end",
        code=Code("b", (f"b = a[{k}:] + a[:{k}]",)),
        answer=lambda a: a[k:] + a[:k],
        wrong=(
            Code("b", (f"b = a[-{k}:] + a[:-{k}]",)),
            Code("b", (f"b = a[{k}:]",)),
            Code("b", (f"b = a[{k + 1}:] + a[:{k + 1}]",)),
        ),
        many=True,
    )


@CATALOGUE.add(4, range(3, 12))
def running(k: int) -> Puzzle:
    def code(step: str, start: str = "0") -> Code:
        return Code("b", ("b = []", f"t = {start}", "for x in a:", f"    t = {step}", "    b.append(t)"))

    return Puzzle(
        reads=(MANY,),
        task=f"for each position of a the sum of all numbers up to there modulo {k}",
        code=code(f"(t + x) % {k}"),
        answer=lambda a: [value % k for value in accumulate(a)],
        wrong=(code("t + x"), code(f"x % {k}"), code(f"(t + x) % {k}", "1")),
        many=True,
    )


@CATALOGUE.add(4, range(3, 14))
def pairs(k: int) -> Puzzle:
    def code(inner: str, test: str) -> Code:
        lines = ("r = 0", "for i in range(len(a)):", f"    for j in range({inner}):", f"        r += {test}")
        return Code("r", lines)

    return Puzzle(
        reads=(integers("a", low=0, high=9, shortest=8, longest=12),),
        task=f"how many pairs of positions i < j have a[i] + a[j] bigger than {k}",
        code=code("i", f"a[i] + a[j] > {k}"),
        answer=lambda a: sum(x + y > k for x, y in combinations(a, 2)),
        wrong=(
            code("len(a)", f"a[i] + a[j] > {k}"),
            code("i + 1", f"a[i] + a[j] > {k}"),
            code("i", f"a[i] + a[j] < {k}"),
        ),
    )


@CATALOGUE.add(4, range(0, 9))
def streak(k: int) -> Puzzle:
    def answer(a: list[int]) -> int:
        best = length = 0
        for x in a:
            length = length + 1 if x > k else 0
            best = max(best, length)
        return best

    def code(test: str, otherwise: str = "0") -> Code:
        lines = ("r = m = 0", "for x in a:", f"    m = m + 1 if {test} else {otherwise}", "    r = max(r, m)")
        return Code("r", lines)

    return Puzzle(
        reads=(integers("a", shortest=8, longest=14),),
        task=f"the length of the longest run of numbers in a row in a that are all bigger than {k}",
        code=code(f"x > {k}"),
        answer=answer,
        wrong=(code(f"x < {k}"), code(f"x > {k}", "m"), code(f"x > {k}", "1")),
    )
