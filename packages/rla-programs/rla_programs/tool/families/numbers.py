"""Families of numbers: long arithmetic, modular powers, digit sums, common divisors and multiples, small search.

The numbers of a question have three digits or more, or one. The small tokenizers of `rla.models.init` write these
digit by digit, and a number of two digits as one token, so copying a number is always the same skill.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence

from rla_programs.tool.families.generated import NUMBER, Gapped, number_of_digits

PRODUCT_DIGITS = 11  # total of adjacent factors: the longest answers
FACTORS = re.compile(r"([+-]?)([0-9*]+)")
LARGEST_POWER = 4000  # digits; Python refuses to write integers of more than 4300
FEWEST_DIGITS = 3
LARGEST_MODULUS = 10**5  # of a search, which tests this many numbers
Levels = Mapping[str, int]


def _expression(levels: Levels, rng: random.Random) -> Sequence[str]:
    """At least one product: small models learn to add by themselves."""
    count, digits = 2 + levels["terms"], FEWEST_DIGITS + levels["digits"]
    while True:
        text, factors, times = str(number_of_digits(digits, rng)), 1, False
        for _ in range(count - 1):
            sign = rng.choice("+-**")
            if sign == "*" and digits * (factors + 1) > PRODUCT_DIGITS:
                sign = rng.choice("+-")
            factors = factors + 1 if sign == "*" else 1
            times = times or sign == "*"
            text += sign + str(number_of_digits(digits, rng))
        if times:
            return [text]


def _computed(values: Sequence[str]) -> Sequence[str]:
    """Products first, then their sum."""
    parts = FACTORS.findall(values[0])
    products = [(-1 if sign == "-" else 1) * math.prod(map(int, text.split("*"))) for sign, text in parts]
    return [str(sum(products))]


ARITHMETIC = Gapped(
    name="arithmetic",
    tops={"terms": 3, "digits": 2},
    about={"terms": "how many numbers the expression has", "digits": "how many digits each number has"},
    asked="Compute {0}.",
    programs=("print({0})",),
    gaps=(f"(?:{NUMBER})(?:[+*-](?:{NUMBER})){{1,7}}",),
    draw=_expression,
    results=_computed,
)


def _power(levels: Levels, rng: random.Random) -> Sequence[str]:
    return [str(number_of_digits(FEWEST_DIGITS + levels[name], rng)) for name in ("base", "exponent", "modulus")]


def _remainder(values: Sequence[str]) -> Sequence[str] | None:
    base, exponent, modulus = map(int, values)
    return [str(pow(base, exponent, modulus))] if modulus else None


POWERS = Gapped(
    name="powers",
    tops={"base": 2, "exponent": 2, "modulus": 2},
    about={"base": "digits of the base", "exponent": "digits of the exponent", "modulus": "digits of the modulus"},
    asked="Compute {0}^{1} mod {2}.",
    programs=("print(pow({0},{1},{2}))",),
    gaps=(NUMBER, NUMBER, NUMBER),
    draw=_power,
    results=_remainder,
)


def _large_power(levels: Levels, rng: random.Random) -> Sequence[str]:
    exponent = rng.randrange(2, 10) if levels["exponent"] == 0 else number_of_digits(FEWEST_DIGITS, rng)
    return [str(number_of_digits(FEWEST_DIGITS + levels["base"], rng)), str(exponent)]


def _digit_sum(values: Sequence[str]) -> Sequence[str] | None:
    base, exponent = map(int, values)
    if len(values[0]) * exponent > LARGEST_POWER:
        return None
    return [str(sum(map(int, str(base**exponent))))]


DIGITS = Gapped(
    name="digits",
    tops={"base": 1, "exponent": 1},
    about={"base": "digits of the base", "exponent": "an exponent of one digit, or of three"},
    asked="Digit sum of {0}^{1}?",
    programs=("print(sum(map(int,str({0}**{1}))))",),
    gaps=(NUMBER, NUMBER),
    draw=_large_power,
    results=_digit_sum,
)


def _with_divisor(levels: Levels, rng: random.Random) -> Sequence[str]:
    """Two numbers whose greatest common divisor has the digits of its level. Drawn independently, it is mostly 1."""
    divisor = number_of_digits(2 + levels["divisor"], rng)
    while True:
        ones = [number_of_digits(2 + levels["rest"], rng) for _ in range(2)]
        if math.gcd(*ones) == 1:
            return [str(divisor * one) for one in ones]


def _divisor(values: Sequence[str]) -> Sequence[str]:
    return [str(math.gcd(*map(int, values)))]


GCD = Gapped(
    name="gcd",
    tops={"divisor": 2, "rest": 2},
    about={"divisor": "digits of the greatest common divisor", "rest": "digits that the numbers have beside it"},
    asked="gcd of {0} and {1}?",
    programs=("import math;print(math.gcd({0},{1}))",),
    gaps=(NUMBER, NUMBER),
    draw=_with_divisor,
    results=_divisor,
)


def _two_numbers(levels: Levels, rng: random.Random) -> Sequence[str]:
    return [str(number_of_digits(FEWEST_DIGITS + levels[name], rng)) for name in ("first", "second")]


def _multiple(values: Sequence[str]) -> Sequence[str]:
    return [str(math.lcm(*map(int, values)))]


LCM = Gapped(
    name="lcm",
    tops={"first": 2, "second": 2},
    about={"first": "digits of the first number", "second": "digits of the second number"},
    asked="lcm of {0} and {1}?",
    programs=("import math;print(math.lcm({0},{1}))",),
    gaps=(NUMBER, NUMBER),
    draw=_two_numbers,
    results=_multiple,
)


def _residue(levels: Levels, rng: random.Random) -> Sequence[str]:
    """The remainder of some square, so that a solution exists."""
    start = number_of_digits(FEWEST_DIGITS + levels["start"], rng)
    modulus = number_of_digits(FEWEST_DIGITS + levels["modulus"], rng)
    while True:
        rest = str(pow(rng.randrange(modulus), 2, modulus))
        if len(rest) != 2:
            return [str(start), str(modulus), rest]


def _first_root(values: Sequence[str]) -> Sequence[str] | None:
    """Squares have the period of the modulus: if there is none in one period, the program never ends."""
    start, modulus, rest = map(int, values)
    if not 0 < modulus < LARGEST_MODULUS:
        return None
    found = next((n for n in range(start, start + modulus) if n * n % modulus == rest), None)
    return None if found is None else [str(found)]


SEARCH = Gapped(
    name="search",
    tops={"start": 2, "modulus": 2},
    about={"start": "digits of the number that the search begins with", "modulus": "digits of the modulus"},
    asked="Smallest n from {0} with n*n%{1}=={2}?",
    programs=("print(next(n for n in range({0},9**9) if n*n%{1}=={2}))",),
    gaps=(NUMBER, NUMBER, NUMBER),
    draw=_residue,
    results=_first_root,
    steady=frozenset({1, 2}),  # with another modulus or remainder there may be no solution
)


def _two_steps(levels: Levels, rng: random.Random) -> Sequence[str]:
    factors = [str(number_of_digits(FEWEST_DIGITS, rng)) for _ in range(2)]
    return [*factors, *(str(number_of_digits(FEWEST_DIGITS + levels[name], rng)) for name in ("exponent", "modulus"))]


def _product_then_remainder(values: Sequence[str]) -> Sequence[str] | None:
    first, second, exponent, modulus = map(int, values)
    return [str(first * second), str(pow(first * second, exponent, modulus))] if modulus else None


STEPS = Gapped(
    name="steps",
    tops={"exponent": 2, "modulus": 2},
    about={"exponent": "digits of the exponent", "modulus": "digits of the modulus"},
    asked="With a={0}*{1} compute a^{2} mod {3}.",
    programs=("print({0}*{1})", "print(pow({4},{2},{3}))"),
    gaps=(NUMBER, NUMBER, NUMBER, NUMBER),
    draw=_two_steps,
    results=_product_then_remainder,
)
