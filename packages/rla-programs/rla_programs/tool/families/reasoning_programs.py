"""Programs for families of reasoning-gym, which a teacher sends to the tool. A family without one has no teacher.

A program is made from the package's `metadata` of an item, and it prints the item's own answer exactly: a test runs the
programs of every family here. Values of the question are copied into the program unchanged, because a small model
learns to copy them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Entry = Mapping[str, Any]
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def _expression(entry: Entry) -> str:
    return f"print({entry['metadata']['expression']})"


def _whole_expression(entry: Entry) -> str:
    """Every division of the family comes out even, and its answer is an integer."""
    return f"print({entry['metadata']['expression'].replace('/', '//')})"


def _decimal_sum(entry: Entry) -> str:
    """Exact, and with as many decimal places as the longest number, as the package answers."""
    signed = "".join(entry["metadata"]["expression"].split(" ")).replace("-", "+-").split("+")
    terms = ",".join(f"'{term}'" for term in signed if term)
    return f"from decimal import Decimal as D;print(sum(map(D,[{terms}])))"


def _divisor(entry: Entry) -> str:
    return f"import math;print(math.gcd({_listed(entry)}))"


def _multiple(entry: Entry) -> str:
    return f"import math;print(math.lcm({_listed(entry)}))"


def _listed(entry: Entry) -> str:
    return ",".join(map(str, entry["metadata"]["numbers"]))


def _bits(entry: Entry) -> str:
    return f"print(bin({entry['metadata']['number']}).count('1'))"


def _letters(entry: Entry) -> str:
    text = " ".join(entry["metadata"]["span"])
    return f"print({text!r}.lower().count({entry['metadata']['target_letter']!r}))"


def _factors(entry: Entry) -> str:
    return (
        f"n,d,f={entry['metadata']['number']},2,[]\n"
        "while n>1:\n"
        "    if n%d:d+=1\n"
        "    else:f.append(str(d));n//=d\n"
        "print(' × '.join(f))"  # noqa: RUF001, the sign of the answer
    )


def _backward(entry: Entry) -> str:
    return f"print({entry['metadata']['word']!r}[::-1])"


def _sorted(entry: Entry) -> str:
    numbers = ",".join(f"'{number}'" for number in entry["metadata"]["original_numbers"])
    backward = ",reverse=True" if entry["metadata"]["direction"] == "descending" else ""
    return f"print(sorted([{numbers}],key=float{backward}))"


def _primes(entry: Entry) -> str:
    low, high = entry["metadata"]["start"], entry["metadata"]["end"]
    return f"print(sum(n>1 and all(n%d for d in range(2,int(n**.5)+1)) for n in range({low},{high}+1)))"


def _converted(entry: Entry) -> str:
    known = entry["metadata"]
    return (
        f"n,t=int('{known['source_repr']}',{known['source_base']}),''\n"
        f"while n:t='{DIGITS}'[n%{known['target_base']}]+t;n//={known['target_base']}\n"
        "print(t or '0')"
    )


def _power(entry: Entry) -> str:
    return f"print(({entry['metadata']['base']})**({entry['metadata']['exponent']}))"


PROGRAMS: Mapping[str, Callable[[Entry], str]] = {
    "base_conversion": _converted,
    "basic_arithmetic": _whole_expression,
    "chain_sum": _expression,
    "count_bits": _bits,
    "count_primes": _primes,
    "decimal_chain_sum": _decimal_sum,
    "gcd": _divisor,
    "lcm": _multiple,
    "letter_counting": _letters,
    "number_sorting": _sorted,
    "power_function": _power,
    "prime_factorization": _factors,
    "products": _expression,
    "spell_backward": _backward,
}


def teacher_program(family: str, entry: Entry) -> str | None:
    """None for a family without a program."""
    make = PROGRAMS.get(family)
    return None if make is None else make(entry)
