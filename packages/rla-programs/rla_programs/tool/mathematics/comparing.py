r"""Whether two answers are the same mathematics: numbers, lists, sets, intervals, equations, matrices, words.

An answer is parsed (`reading`) and compared part by part (`same_mathematics`), single expressions by value
(`expressions`).

    numbers      exactly; a rounded decimal needs at least FEWEST_DIGITS digits, all of them right
    lists        1, 2 and {1, 2} in any order, (1, 2) in this one; the brackets of intervals count
    names        x = 5 is 5 unless the truth names another symbol; 11 = 12 is not 12
    relations    x > 2 is 2 < x and (2, \infty); equations are the same if both hold at the same points
    units        known units are ignored if one side has none; 50% is 50 for a truth in percent, and 0.5
    dots         1, 2, \ldots is compared as text only
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from rla_programs.tool.mathematics.expressions import proportional, same_expression, symbols_in, value_of
from rla_programs.tool.mathematics.numbers import is_real, rounded_off
from rla_programs.tool.mathematics.readings import REVERSED, UNORDERED, Reading, reading
from rla_programs.tool.mathematics.spelling import is_word

# significant digits, and decimal places, of a decimal that stands for a number which it does not equal
FEWEST_DIGITS = 6


def same_mathematics(truth: str, answer: str) -> bool:
    """Whether the answer is the truth. Undecidable and unparsable answers are not."""
    if truth.strip() == answer.strip():
        return True
    try:
        return _same(reading(truth), reading(answer))
    except (ArithmeticError, ValueError, RecursionError):
        return False


def is_readable(truth: str) -> bool:
    """Whether answers can be compared with a truth by value, and not only as text."""
    try:
        found = reading(truth)
        return _decidable(found)
    except (ArithmeticError, ValueError, RecursionError):
        return False


def _decidable(found: Reading) -> bool:
    if found.kind == "raw":
        return False
    if found.kind == "one" and not symbols_in(found.node):
        value_of(found.node, {})  # raises if it cannot be computed
    return all(map(_decidable, found.parts))


def _same(truth: Reading, answer: Reading) -> bool:
    if "relation" in (truth.kind, answer.kind):
        return _same_relation(truth, answer)
    if truth.kind == answer.kind == "list":
        return _same_list(truth, answer)
    if {truth.kind, answer.kind} == {"words", "one"} and not (truth.unit or answer.unit):
        return bool(truth.node and answer.node) and same_expression(truth.node, answer.node)
    if {truth.kind, answer.kind} == {"union", "list"} and not (truth.brackets or answer.brackets):
        return _same_union(truth, answer)
    if truth.kind != answer.kind:
        for one, other in ((truth, answer), (answer, truth)):  # a list of one element is that element
            if one.kind == "list" and one.brackets in UNORDERED and len(one.parts) == 1:
                return _same(one.parts[0], other)
        return False
    if truth.kind == "one":
        return _same_one(truth, answer)
    if truth.kind == "union":
        return _same_union(truth, answer)
    if truth.kind in ("matrix", "ratio"):
        return truth.brackets == answer.brackets and _same_in_order(truth.parts, answer.parts)
    if truth.text == answer.text:
        return bool(truth.text)
    factors = len(truth.text) == len(answer.text) == 2 and truth.node and answer.node  # xy is yx; words are not
    return bool(factors) and same_expression(truth.node, answer.node)


def _same_union(truth: Reading, answer: Reading) -> bool:
    one_name = all(len(_names(found)) < 2 for found in (truth, answer))
    return one_name and _same_in_any_order(truth.parts, answer.parts)


def _names(found: Reading) -> frozenset[str]:
    """The symbols that the relation, or each relation of a list, is about; x_1 and x_2 are values of x."""
    if found.kind != "relation":
        return frozenset().union(*(_names(part) for part in found.parts if part.kind == "relation"))
    if found.text:
        return frozenset({found.text.partition("_")[0]})
    return frozenset().union(*(symbols_in(part.node) for part in found.parts))


def _same_list(truth: Reading, answer: Reading) -> bool:
    for one, other in ((truth, answer), (answer, truth)):
        if one.brackets == "\u27ea\u27eb" and len(one.parts) == 1 and other.brackets == "()":
            return _same(one.parts[0], other)
    kinds = {truth.brackets, answer.brackets}
    if kinds <= UNORDERED:
        names, others = _names(truth), _names(answer)
        if bool(names) != bool(others) and len(names | others) > 1:  # x = 1, y = 2 is 1, 2 but not 2, 1
            return _same_in_order(truth.parts, answer.parts)
        return _same_in_any_order(truth.parts, answer.parts)
    if truth.brackets != answer.brackets and kinds != {"", "()"}:
        return False
    return _same_in_order(truth.parts, answer.parts)


def _same_in_order(truth: Sequence[Reading], answer: Sequence[Reading]) -> bool:
    return len(truth) == len(answer) and all(map(_same, truth, answer))


def _same_in_any_order(truth: Sequence[Reading], answer: Sequence[Reading]) -> bool:
    left = list(answer)
    if len(truth) != len(left):
        return False
    for one in truth:
        place = next((number for number, other in enumerate(left) if _same(one, other)), None)
        if place is None:
            return False
        del left[place]
    return True


def _same_one(truth: Reading, answer: Reading) -> bool:
    if truth.unit and answer.unit and truth.unit != answer.unit:
        return False
    if _same_value(truth, answer):
        return answer.unit != "%" or truth.unit == "%"
    if "%" in (truth.unit, answer.unit) and truth.unit != answer.unit:
        percent, plain = (truth, answer) if truth.unit == "%" else (answer, truth)
        return same_expression(("/", percent.node, ("number", Fraction(100))), plain.node)
    return False


def _same_value(truth: Reading, answer: Reading) -> bool:
    if same_expression(truth.node, answer.node):
        return True
    if symbols_in(truth.node) or symbols_in(answer.node):
        return False
    return _rounds_to(truth, answer) or _rounds_to(answer, truth)


def _rounds_to(exact: Reading, decimal: Reading) -> bool:
    """Whether a decimal is the other number, rounded to its digits; with few digits it stands for itself only."""
    if decimal.rounded is None or (exact.rounded and exact.rounded.digits < decimal.rounded.digits):
        return False
    places, digits, exponent = decimal.rounded
    if min(digits, places - exponent) < FEWEST_DIGITS:
        return False
    wanted, said = value_of(exact.node, {}), value_of(decimal.node, {})
    last = Fraction(10) ** (exponent - places)  # one unit of the last digit
    return is_real(wanted) and bool(abs(rounded_off(wanted) - rounded_off(said)) <= rounded_off(last) / 2)


def _same_relation(truth: Reading, answer: Reading) -> bool:
    named_truth, named_answer = _named_value(truth), _named_value(answer)
    if named_truth and named_answer and truth.kind == answer.kind:
        same_name = truth.text == answer.text or is_word(truth.text)
        if same_name and all(_same(named_truth[-1], one) for one in named_answer):
            return True
    elif truth.kind != "relation":
        values = named_answer or (answer.parts if set(answer.signs) == {"="} else ())
        if values and all(_same(truth, one) for one in values):
            return True
    elif answer.kind != "relation" and named_truth:
        return _same(named_truth[-1], answer)
    one, other = _interval(truth), _interval(answer)
    if one and other and (truth.kind != answer.kind or _names(truth) == _names(answer)) and _same(one, other):
        return True
    if truth.kind != answer.kind:
        return False
    return _same_chain(truth, answer)


def _named_value(found: Reading) -> tuple[Reading, ...]:
    return found.parts[1:] if found.kind == "relation" and found.text else ()


def _same_chain(truth: Reading, answer: Reading) -> bool:
    reversed_signs = tuple(REVERSED.get(sign, sign) for sign in answer.signs[::-1])
    for signs, parts in ((answer.signs, answer.parts), (reversed_signs, answer.parts[::-1])):
        if signs == truth.signs and _same_in_order(truth.parts, parts):
            return True
        if signs == truth.signs and len(signs) == 1 and signs[0] != "\u2208":
            sides = (*truth.parts, *parts)
            if all(side.kind == "one" and not side.unit for side in sides):
                one, other = (("-", sides[0].node, sides[1].node), ("-", sides[2].node, sides[3].node))
                if proportional(one, other, positive=signs[0] in REVERSED):
                    return True
    return False


def _interval(found: Reading) -> Reading | None:
    r"""The numbers that a relation of one symbol allows: x > 2 as (2, \infty), x \in [1, 2] as [1, 2]."""
    if found.kind in ("list", "union"):
        return found
    if found.kind != "relation" or not found.signs:
        return None
    if found.signs == ("\u2208",):
        return found.parts[1]
    infinite = Reading(kind="one", node=("constant", "inf"))
    negative = Reading(kind="one", node=("-", ("number", Fraction(0)), ("constant", "inf")))
    signs, parts = found.signs, found.parts
    if signs[0] in ">\u2265":
        signs, parts = tuple(REVERSED.get(sign, sign) for sign in signs[::-1]), parts[::-1]
    if not all(sign in "<\u2264" for sign in signs):
        return None
    if len(signs) == 1:
        if parts[0].node[:1] == ("symbol",):
            return _between("(", negative, parts[1], signs[0])
        if parts[1].node[:1] == ("symbol",):
            return _between("(" if signs[0] == "<" else "[", parts[0], infinite, "<")
        return None
    if len(signs) == 2 and parts[1].node[:1] == ("symbol",):
        return _between("(" if signs[0] == "<" else "[", parts[0], parts[2], signs[1])
    return None


def _between(opener: str, low: Reading, high: Reading, sign: str) -> Reading:
    return Reading(kind="list", parts=(low, high), brackets=opener + (")" if sign == "<" else "]"))
