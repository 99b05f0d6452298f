"""Whether two expressions have the same value, tested at several points if they contain symbols."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from rla_programs.tool.mathematics.grammar import Node
from rla_programs.tool.mathematics.numbers import (
    Number,
    Undecided,
    applied,
    binomial_of,
    difference_of,
    is_real,
    is_whole,
    limited,
    power_of,
    precise,
    product_of,
    quotient_of,
    root_of,
    same_number,
    sum_of,
)

MOST_TERMS = 1000  # of a sum or product
LONGEST_TERM = 10_000  # bits
MOST_SYMBOLIC_TERMS = 30  # if it has symbols, whose values are tried at many points
POINTS = 24  # at which expressions with symbols are compared
FEWEST_POINTS = 4  # at which both need a value


def symbols_in(node: Any) -> frozenset[str]:
    """The names of the symbols in an expression."""
    if not isinstance(node, tuple) or not node:
        return frozenset()
    if node[0] == "symbol":
        return frozenset({node[1]})
    return frozenset().union(*map(symbols_in, node[1:])) - ({node[1]} if node[0] in ("sum", "prod") else frozenset())


def same_expression(one: Node, other: Node) -> bool:
    """Whether the values are equal at all points at which both have one. Raises Undecided."""
    if one == other:
        return True
    names = sorted(symbols_in(one) | symbols_in(other))
    if symbols_in(one) != symbols_in(other):
        return False
    if not names:
        return same_number(value_of(one, {}), value_of(other, {}))
    met = 0
    for point in _sample_points(names):
        try:
            left, right = value_of(one, point), value_of(other, point)
        except ArithmeticError:
            continue
        if not same_number(left, right):
            if (is_real(left) and is_real(right)) or all(number > 0 for number in point.values()):
                return False
            continue  # branches of roots and logarithms
        met += 1
    if met < FEWEST_POINTS:
        raise Undecided("no points at which both have a value")
    return True


def proportional(one: Node, other: Node, *, positive: bool = False) -> bool:
    """Whether one is the other times a number other than 0, so that both are 0 at the same points. Raises Undecided."""
    names = sorted(symbols_in(one) | symbols_in(other))
    ratio, met = None, 0
    for point in _sample_points(names) if names else ():
        try:
            left, right = value_of(one, point), value_of(other, point)
            found = quotient_of(left, right)
        except ArithmeticError:
            continue
        if found == 0 or (ratio is not None and not same_number(found, ratio)):
            return False
        if not is_real(found) or (positive and found < 0):
            return False
        ratio, met = found, met + 1
    if met < FEWEST_POINTS:
        raise Undecided("no points at which both have a value")
    return True


def _sample_points(names: list[str]) -> Iterator[dict[str, Fraction]]:
    """The same for every pair: first with positive numbers, then with both signs. Every third point has large ones,
    which distinguish |x - 5| from 5 - x.
    """
    draw = random.Random(0)
    for number in range(POINTS):
        signs = (1,) if number < POINTS // 2 else (1, -1)
        unit = 9 if number % 3 == 2 else 700
        yield {name: Fraction(draw.randrange(101, 1999), unit) * draw.choice(signs) for name in names}


def value_of(node: Node, point: Mapping[str, Number]) -> Number:
    """A Fraction if it is known exactly, else a number of mpmath. Raises ArithmeticError."""
    kind = node[0]
    if kind == "number":
        return node[1]
    if kind == "symbol":
        return point[node[1]]
    if kind == "constant":
        mp = precise()
        return {"pi": +mp.pi, "e": +mp.e, "i": mp.j, "inf": mp.inf}[node[1]]
    if kind == "degree":
        return precise().pi / 180
    if kind in ("sum", "prod"):
        return _series(node, point)
    inner = [value_of(part, point) for part in node[1:] if isinstance(part, tuple)]
    if kind == "call":
        return applied(node[1], inner[0])
    return limited(OPERATIONS[kind](*inner))


def _series(node: Node, point: Mapping[str, Number]) -> Number:
    kind, name, low, high, term = node
    first, last = value_of(low, point), value_of(high, point)
    most = MOST_SYMBOLIC_TERMS if point else MOST_TERMS
    if not (is_whole(first) and is_whole(last) and last - first < most):
        raise Undecided("terms without number")
    total: Number = Fraction(int(kind == "prod"))
    for number in range(int(first), int(last) + 1):
        one = value_of(term, {**point, name: Fraction(number)})
        if isinstance(one, Fraction) and one.numerator.bit_length() + one.denominator.bit_length() > LONGEST_TERM:
            raise Undecided("a term that is too long")
        total = limited(sum_of(total, one) if kind == "sum" else product_of(total, one))
    return total


OPERATIONS: dict[str, Callable[..., Number]] = {
    **{"+": sum_of, "-": difference_of, "*": product_of, "/": quotient_of, "^": power_of},
    **{"root": root_of, "binomial": binomial_of},
}
