"""Numbers of expressions: fractions if they are known exactly, else numbers of mpmath with DIGITS digits.

A sum in which one term is too small to change the other is undecided, so that 2^(10^9) + 1 does not equal 2^(10^9). So
is any value that is too large to compute.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import comb, factorial, isqrt, prod
from typing import Any

DIGITS, AGREEING = 400, 250  # decimal digits that are computed, and that have to agree
LARGEST_BITS = 200_000  # of an exact number; larger ones are computed to DIGITS digits
LARGEST_POWER = 10**13  # of an exponent, or of a logarithm of a result
LARGEST_FACTORIAL = 3000  # that is exact
MOST_FACTORS = 50  # of a binomial coefficient of a fraction, which a symbol may stand for

Number = Any  # a Fraction, or a real or complex number of mpmath


class Undecided(ArithmeticError):
    """A value that is too large to compute, or that the computed digits cannot tell from another."""


@cache
def precise() -> Any:
    """mpmath with DIGITS digits."""
    import mpmath

    mp = mpmath.mp.clone()
    mp.dps = DIGITS
    return mp


def limited(number: Number) -> Number:
    """A Fraction of at most LARGEST_BITS bits, without imaginary rounding errors. Raises Undecided."""
    if isinstance(number, Fraction):
        bits = max(number.numerator.bit_length(), number.denominator.bit_length())
        return number if bits <= LARGEST_BITS else rounded_off(number)
    mp = precise()
    if isinstance(number, mp.mpc) and abs(number.imag) <= abs(number) * mp.mpf(10) ** -(AGREEING + 10):
        number = number.real
    if mp.isnan(number):
        raise Undecided("not a number")
    if abs(mp.mag(number) if number and not mp.isinf(number) else 0) > LARGEST_POWER:
        raise Undecided("too large")
    return number


def rounded_off(number: Number) -> Number:
    mp = precise()
    return mp.mpf(number.numerator) / number.denominator if isinstance(number, Fraction) else number


def sum_of(one: Number, other: Number) -> Number:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one + other
    one, other = rounded_off(one), rounded_off(other)
    total, mp = one + other, precise()
    large = max(abs(one), abs(other))
    if mp.isinf(large):
        return total
    if abs(total) <= large * mp.mpf(10) ** -(AGREEING + 20):
        return Fraction(0)  # the rounding error of a difference
    small = min(abs(one), abs(other))
    if small and small < large * mp.mpf(10) ** -AGREEING:
        raise Undecided("a term that vanishes beside another")
    return total


def difference_of(one: Number, other: Number) -> Number:
    return sum_of(one, -other)


def product_of(one: Number, other: Number) -> Number:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one * other
    return rounded_off(one) * rounded_off(other)


def quotient_of(one: Number, other: Number) -> Number:
    if not other:
        raise ZeroDivisionError
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one / other
    if precise().isinf(rounded_off(other)):
        raise Undecided("a limit")
    return rounded_off(one) / rounded_off(other)


def power_of(base: Number, exponent: Number) -> Number:
    mp = precise()
    if isinstance(base, Fraction) and is_whole(exponent):
        bits = max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(int(exponent))
        if not base and exponent < 0:
            raise ZeroDivisionError
        if bits <= LARGEST_BITS or base in (0, 1, -1):
            return base ** (int(exponent) if base not in (0, 1, -1) else int(exponent) % 2 or 2 * (exponent != 0))
    large = abs(rounded_off(exponent)) * (abs(mp.log(abs(rounded_off(base)))) if base else 0)
    if mp.isinf(rounded_off(exponent)) or mp.isinf(rounded_off(base)) or large > LARGEST_POWER:
        raise Undecided("too large")
    return mp.power(rounded_off(base), int(exponent) if is_whole(exponent) else rounded_off(exponent))


def root_of(inner: Number, degree: Number) -> Number:
    """The real root if there is one."""
    if not is_whole(degree) or not 0 < degree < 1000:
        raise Undecided("a root of another degree")
    if is_real(inner) and inner < 0 and int(degree) % 2:
        return -root_of(-inner, degree)
    if degree == 2 and isinstance(inner, Fraction) and inner >= 0:
        above, below = isqrt(inner.numerator), isqrt(inner.denominator)
        if above**2 == inner.numerator and below**2 == inner.denominator:
            return Fraction(above, below)
    mp = precise()
    return mp.root(rounded_off(inner), int(degree))


def binomial_of(above: Number, below: Number) -> Number:
    if is_whole(below) and 0 <= below <= MOST_FACTORS and isinstance(above, Fraction) and not is_whole(above):
        factors = (Fraction(above - one, one + 1) for one in range(int(below)))
        return prod(factors, start=Fraction(1))
    if not (is_whole(above) and is_whole(below) and 0 <= below <= above <= LARGEST_FACTORIAL):
        raise Undecided("a binomial coefficient that is not computed")
    return Fraction(comb(int(above), int(below)))


def applied(name: str, argument: Number) -> Number:
    mp = precise()
    if name == "factorial":
        if is_whole(argument) and 0 <= argument <= LARGEST_FACTORIAL:
            return Fraction(factorial(int(argument)))
        if not is_real(argument) or argument < 0 or argument > 10**10:
            raise Undecided("a factorial that is not computed")
        return limited(mp.factorial(rounded_off(argument)))
    if name == "abs":
        return abs(argument)
    if name in ("floor", "ceil"):
        if not isinstance(argument, Fraction):
            raise Undecided("a floor of digits")
        return Fraction(argument.__floor__() if name == "floor" else argument.__ceil__())
    number = rounded_off(argument)
    if name not in PRECISE:
        raise Undecided(name)
    if abs(number) > (LARGEST_POWER if name in ("exp", "sinh", "cosh") else mp.mpf(10) ** 20) and name != "log":
        raise Undecided("too large")
    if name == "log" and (not number or mp.isinf(number)):
        raise Undecided("a logarithm of 0")
    found = getattr(mp, name)(number)
    noise = name in ("sin", "cos", "tan") and abs(number) > 0.001 and abs(found) < mp.mpf(10) ** -(AGREEING + 20)
    return Fraction(0) if noise else limited(found)


def is_whole(number: Number) -> bool:
    return isinstance(number, Fraction) and number.denominator == 1


def is_real(number: Number) -> bool:
    return isinstance(number, Fraction) or not isinstance(number, precise().mpc)


def same_number(one: Number, other: Number) -> bool:
    """Exactly if both are exact, else to AGREEING digits."""
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one == other
    mp = precise()
    one, other = rounded_off(one), rounded_off(other)
    if mp.isinf(one) or mp.isinf(other):
        return bool(one == other)
    return bool(abs(one - other) <= max(abs(one), abs(other)) * mp.mpf(10) ** -AGREEING)


PRECISE = frozenset(
    ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "asin", "acos", "atan", "log", "exp")
)
