r"""Expressions in LaTeX or program notation, such as `\frac{1}{2}` and `7*sin(pi*x/5)+1`: read, and compared by value.

Two expressions are equal if both are the same rational number, or agree to AGREEING digits, at several points of their
symbols if they have any. A sum in which one term vanishes beside another is left undecided, so that 2^(10^9) + 1 does
not equal 2^(10^9); so is whatever is too large to compute. No text is executed, and sizes are bounded.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from math import comb, factorial, isqrt
from typing import Any, NamedTuple

DIGITS, AGREEING = 90, 50  # decimal digits that are computed, and that have to agree
LARGEST_BITS = 200_000  # of an exact number; larger ones are computed to DIGITS digits
LARGEST_POWER = 10**13  # of an exponent, or of a logarithm of a result
LARGEST_FACTORIAL = 3000  # that is exact
MOST_TERMS = 10_000  # of a sum or product
MOST_NESTED, MOST_TOKENS = 60, 500
POINTS = 16  # at which expressions with symbols are compared
FEWEST_POINTS = 4  # at which both need a value

Number = Any  # a Fraction, or a real or complex number of mpmath
Node = tuple[Any, ...]  # (kind, ...): ("number", Fraction), ("symbol", name), ("call", name, Node), ("+", Node, Node)

GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota", "kappa"),
    *("lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "varphi", "chi", "psi", "omega"),
    *("Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega", "ell"),
)
CONSTANTS = {"pi": "pi", "infty": "inf", "infinity": "inf", "inf": "inf", "oo": "inf", "e": "e", "i": "i"}
FUNCTIONS = (
    *("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "asin", "acos"),
    *("atan", "ln", "log", "exp", "sqrt", "abs", "floor", "ceil"),
)
ALIASES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "ln": "log"}
INVERSE = {"sin": "asin", "cos": "acos", "tan": "atan"}
FRACTIONS = ("frac", "dfrac", "tfrac", "cfrac")
TIMES = ("cdot", "times", "ast", "star")
DECORATIONS = ("overline", "bar", "hat", "vec", "tilde", "mathbb", "mathcal", "overrightarrow", "overleftrightarrow")
CLOSING = {"(": ")", "[": "]", "{": "}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil", "\\lvert": "\\rvert", "|": "|"}
TOKEN = re.compile(
    r"(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,6}(?![\d.]))?)|(?P<command>\\[a-zA-Z]+)|(?P<name>[a-zA-Z]+)"
    r"|(?P<sign>\*\*|!!|[-+*/^!()\[\]{}|_,'\u00b0=])|(?P<space>\s+)|(?P<other>.)",
    re.ASCII | re.DOTALL,
)
WORDS = sorted({*FUNCTIONS, *CONSTANTS, *(name for name in GREEK if len(name) > 2)} - {"e", "i"}, key=len, reverse=True)
NAME = re.compile("|".join((*WORDS, "[a-zA-Z]")))  # the longest name first


class Unreadable(ValueError):
    """A text that is not an expression of this grammar."""


class Undecided(ArithmeticError):
    """A value that is too large to compute, or that its digits do not tell from another."""


class Token(NamedTuple):
    kind: str
    text: str
    spaced: bool  # whether white space stands before it


def tokens_of(text: str) -> list[Token]:
    """Letters that make no known name are single symbols. Raises Unreadable."""
    found: list[Token] = []
    spaced = False
    for match in TOKEN.finditer(text):
        kind, part = str(match.lastgroup), match[0]
        if kind == "other":
            raise Unreadable(part)
        if kind == "name":
            for name in NAME.findall(part):
                found.append(Token("name", name, spaced))
                spaced = False
        elif kind != "space":
            found.append(Token(kind, part, spaced))
        spaced = kind == "space"
    if len(found) > MOST_TOKENS:
        raise Unreadable("too long")
    return found


def expression(text: str) -> Node:
    """The tree of an expression. Raises Unreadable."""
    parser = _Parser(tokens_of(text))
    node = parser.sum()
    if parser.rest:
        raise Unreadable(parser.rest[0].text)
    return node


class _Parser:
    """Recursive descent; depth is bounded by MOST_NESTED."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._place, self._depth = tokens, 0, 0

    @property
    def rest(self) -> list[Token]:
        return self._tokens[self._place :]

    def peek(self, ahead: int = 0) -> Token:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else Token("end", "", False)

    def take(self, *texts: str) -> bool:
        if self.peek().text in texts and self.peek().kind != "end":
            self._place += 1
            return True
        return False

    def need(self, text: str) -> None:
        if not self.take(text):
            raise Unreadable(self.peek().text or "the end")

    def sum(self) -> Node:
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise Unreadable("nested too deeply")
        node = self.product()
        while self.peek().text in ("+", "-"):
            sign = self.peek().text
            self._place += 1
            node = (sign, node, self.product())
        self._depth -= 1
        return node

    def product(self) -> Node:
        """Also of factors side by side, which bind as those with a sign do: 1/2x is half of x."""
        node = self.signed()
        while True:
            if self.take("*", *(f"\\{name}" for name in TIMES)):
                node = ("*", node, self.signed())
            elif self.take("/", "\\div"):
                node = ("/", node, self.signed())
            elif self.begins():
                if self.peek().kind == "number":
                    raise Unreadable("a number beside a factor")
                node = ("*", node, self.power())
            else:
                return node

    def begins(self) -> bool:
        """Whether a factor begins here."""
        token = self.peek()
        if token.kind == "command":
            return token.text[1:] not in ("rfloor", "rceil", "rvert", "div", *TIMES)
        return token.kind in ("number", "name") or token.text in ("(", "[", "{")

    def signed(self) -> Node:
        negative = False
        while self.peek().text in ("+", "-"):
            negative ^= self.peek().text == "-"
            self._place += 1
        node = self.power()
        return ("-", ("number", Fraction(0)), node) if negative else node

    def power(self) -> Node:
        node = self.postfix(self.atom())
        if self.take("^", "**"):
            if self.degrees():
                return ("*", node, ("degree",))
            self._depth += 1
            if self._depth > MOST_NESTED:
                raise Unreadable("nested too deeply")
            exponent = self.group() if self.peek().text == "{" else self.signed_atom()
            self._depth -= 1
            node = self.postfix(("^", node, exponent))
        return ("*", node, ("degree",)) if self.take("\u00b0") else node

    def degrees(self) -> bool:
        for closed in (("\\circ",), ("{", "\\circ", "}")):
            if tuple(self.peek(n).text for n in range(len(closed))) == closed:
                self._place += len(closed)
                return True
        return False

    def signed_atom(self) -> Node:
        """An exponent without braces: one digit of several in LaTeX, but all of a number in a program."""
        if self.take("-"):
            return ("-", ("number", Fraction(0)), self.power())
        self.take("+")
        return self.power()

    def postfix(self, node: Node) -> Node:
        while self.take("!"):
            node = ("call", "factorial", node)
        if self.peek().text in ("!!", "'"):
            raise Unreadable(self.peek().text)
        return node

    def group(self) -> Node:
        opener = self.peek().text
        if opener not in CLOSING:
            return self.digit_or_atom()
        self._place += 1
        node = self.sum()
        self.need(CLOSING[opener])
        return node

    def digit_or_atom(self) -> Node:
        r"""What a command takes without braces: `\frac12` is 1/2, `\sqrt 12` is the root of 1, and then 2."""
        token = self.peek()
        if token.kind == "number" and token.text.isdigit() and len(token.text) > 1:
            self._tokens[self._place] = Token("number", token.text[1:], False)
            return ("number", Fraction(token.text[0]))
        return self.atom()

    def atom(self) -> Node:
        token = self.peek()
        self._place += 1
        if token.kind == "number":
            return self.number(token)
        if token.text == "|":
            node = self.sum()
            self.need("|")
            return ("call", "abs", node)
        if token.text in CLOSING:
            self._place -= 1
            node = self.group()
            kinds = {"\\lfloor": "floor", "\\lceil": "ceil", "\\lvert": "abs"}
            return ("call", kinds[token.text], node) if token.text in kinds else node
        if token.kind == "command":
            return self.command(token.text[1:])
        if token.kind == "name":
            return self.named(token.text)
        raise Unreadable(token.text or "the end")

    def number(self, token: Token) -> Node:
        value = exact_decimal(token.text)
        if self.peek().text == "\\overline" and "." in token.text:
            return self.repeating(token.text, value)
        after = self.peek()
        if token.text.isdigit() and after.kind == "command" and after.text[1:] in FRACTIONS:
            place = self._place
            self._place += 1
            above, below = self.group(), self.group()
            if above[0] == below[0] == "number" and 0 < above[1] < below[1]:
                return ("number", value + above[1] / below[1])  # a mixed number
            self._place = place
        return ("number", value)

    def repeating(self, text: str, value: Fraction) -> Node:
        self._place += 1
        self.need("{")
        period = self.peek().text
        self._place += 1
        self.need("}")
        if not period.isdigit():
            raise Unreadable(period)
        places = len(text.partition(".")[2])
        return ("number", value + Fraction(int(period), (10 ** len(period) - 1) * 10**places))

    def command(self, name: str) -> Node:
        if name in FRACTIONS:
            return ("/", self.group(), self.group())
        if name in ("binom", "dbinom", "tbinom"):
            return ("binomial", self.group(), self.group())
        if name == "sqrt":
            degree: Node = ("number", Fraction(2))
            if self.take("["):
                degree = self.sum()
                self.need("]")
            return ("root", self.group(), degree)
        if name in ("sum", "prod"):
            return self.series(name)
        if name in DECORATIONS:
            inside = "".join(token.text for token in self.braced())
            return self.subscripted(f"{name}({inside})")
        return self.named(name)

    def braced(self) -> Iterator[Token]:
        self.need("{")
        while not self.take("}"):
            if self.peek().kind == "end":
                raise Unreadable("the end")
            yield self.peek()
            self._place += 1

    def named(self, name: str) -> Node:
        if name in FUNCTIONS or name in ("max", "min"):
            return self.function(ALIASES.get(name, name))
        if name in CONSTANTS and self.peek().text != "_":
            return ("constant", CONSTANTS[name])
        if len(name) > 1 and name not in GREEK:
            raise Unreadable(name)
        return self.subscripted(name)

    def subscripted(self, name: str) -> Node:
        if self.take("_"):
            if self.peek().text == "{":
                inside = "".join(token.text for token in self.braced())
            else:
                inside = self.peek().text
                self._place += 1
            name = f"{name}_{inside}"
        if self.peek().kind == "number" and not self.peek().spaced:
            raise Unreadable("a digit behind a letter")
        return ("symbol", name)

    def function(self, name: str) -> Node:
        base: Node | None = None
        if name == "log" and self.take("_"):
            base = self.group()
        exponent: Node | None = None
        if self.take("^", "**"):
            exponent = self.group()
            if exponent == ("-", ("number", Fraction(0)), ("number", Fraction(1))) and name in INVERSE:
                name, exponent = INVERSE[name], None
        if self.peek().text in ("(", "{", "["):
            inner = self.group()
            if self.take("("):
                raise Unreadable("two arguments")
        else:
            inner = self.argument()
        node: Node = ("root", inner, ("number", Fraction(2))) if name == "sqrt" else ("call", name, inner)
        if base is not None:
            node = ("/", node, ("call", "log", base))
        return ("^", node, exponent) if exponent is not None else node

    def argument(self) -> Node:
        """Factors side by side, up to the next function: sin 2x cos y is a product of two."""
        node = self.power() if self.begins() or self.peek().text == "|" else self.signed()
        while self.begins() and self.peek().text.lstrip("\\") not in FUNCTIONS and self.peek().text != "(":
            if self.peek().kind == "number":
                raise Unreadable("a number beside a factor")
            node = ("*", node, self.power())
        return node

    def series(self, name: str) -> Node:
        self.need("_")
        self.need("{")
        variable = self.peek()
        self._place += 1
        self.need("=")
        low = self.sum()
        self.need("}")
        self.need("^")
        return (name, variable.text, low, self.group(), self.product())


def exact_decimal(text: str) -> Fraction:
    digits, _, exponent = text.lower().partition("e")
    if abs(int(exponent or 0)) > LARGEST_BITS // 4 or len(digits) > LARGEST_BITS // 4:
        raise Unreadable("a number that is too long")
    return Fraction(digits.rstrip(".") or "0") * Fraction(10) ** int(exponent or 0)


def symbols_in(node: Any) -> frozenset[str]:
    """The names of the symbols that an expression has."""
    if not isinstance(node, tuple):
        return frozenset()
    if node[0] == "symbol":
        return frozenset({node[1]})
    return frozenset().union(*map(symbols_in, node[1:])) - ({node[1]} if node[0] in ("sum", "prod") else frozenset())


def same_expression(one: Node, other: Node) -> bool:
    """Whether both have one value, wherever both have one. Raises Undecided."""
    if one == other:
        return True
    names = sorted(symbols_in(one) | symbols_in(other))
    if symbols_in(one) != symbols_in(other):
        return False
    if not names:
        return same_number(value(one, {}), value(other, {}))
    met = 0
    for point in points(names):
        try:
            left, right = value(one, point), value(other, point)
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
    """Whether one is the other times a number other than 0: both are 0 at the same points. Raises Undecided."""
    names = sorted(symbols_in(one) | symbols_in(other))
    ratio, met = None, 0
    for point in points(names) if names else ():
        try:
            left, right = value(one, point), value(other, point)
            found = divided(left, right)
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


def points(names: list[str]) -> Iterator[dict[str, Fraction]]:
    """The same for every pair: first of positive numbers, then of both signs."""
    draw = random.Random(0)
    for number in range(POINTS):
        signs = (1,) if number < POINTS // 2 else (1, -1)
        yield {name: Fraction(draw.randrange(101, 1999), 700) * draw.choice(signs) for name in names}


@cache
def context() -> Any:
    """mpmath with DIGITS digits."""
    import mpmath

    mp = mpmath.mp.clone()
    mp.dps = DIGITS
    return mp


def value(node: Node, point: Mapping[str, Number]) -> Number:
    """A Fraction if it is known exactly, else a number of mpmath. Raises ArithmeticError."""
    kind = node[0]
    if kind == "number":
        return node[1]
    if kind == "symbol":
        return point[node[1]]
    if kind == "constant":
        mp = context()
        return {"pi": +mp.pi, "e": +mp.e, "i": mp.j, "inf": mp.inf}[node[1]]
    if kind == "degree":
        return context().pi / 180
    if kind in ("sum", "prod"):
        return _series(node, point)
    inner = [value(part, point) for part in node[1:] if isinstance(part, tuple)]
    if kind == "call":
        return called(node[1], inner[0])
    return bounded(OPERATIONS[kind](*inner))


def _series(node: Node, point: Mapping[str, Number]) -> Number:
    kind, name, low, high, term = node
    first, last = value(low, point), value(high, point)
    if not (is_whole(first) and is_whole(last) and last - first < MOST_TERMS):
        raise Undecided("terms without number")
    total: Number = Fraction(int(kind == "prod"))
    for number in range(int(first), int(last) + 1):
        one = value(term, {**point, name: Fraction(number)})
        total = added(total, one) if kind == "sum" else multiplied(total, one)
    return total


def bounded(number: Number) -> Number:
    """A Fraction of at most LARGEST_BITS bits; noise of imaginary parts is left out. Raises Undecided."""
    if isinstance(number, Fraction):
        bits = max(number.numerator.bit_length(), number.denominator.bit_length())
        return number if bits <= LARGEST_BITS else floating(number)
    mp = context()
    if isinstance(number, mp.mpc) and abs(number.imag) <= abs(number) * mp.mpf(10) ** -(AGREEING + 10):
        number = number.real
    if mp.isnan(number):
        raise Undecided("not a number")
    if abs(mp.mag(number) if number and not mp.isinf(number) else 0) > LARGEST_POWER:
        raise Undecided("too large")
    return number


def floating(number: Number) -> Number:
    mp = context()
    return mp.mpf(number.numerator) / number.denominator if isinstance(number, Fraction) else number


def added(one: Number, other: Number) -> Number:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one + other
    one, other = floating(one), floating(other)
    total, mp = one + other, context()
    large = max(abs(one), abs(other))
    if mp.isinf(large):
        return total
    if abs(total) <= large * mp.mpf(10) ** -(AGREEING + 20):
        return Fraction(0)  # noise of a difference
    small = min(abs(one), abs(other))
    if small and small < large * mp.mpf(10) ** -AGREEING:
        raise Undecided("a term that vanishes beside another")
    return total


def subtracted(one: Number, other: Number) -> Number:
    return added(one, -other)


def multiplied(one: Number, other: Number) -> Number:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one * other
    return floating(one) * floating(other)


def divided(one: Number, other: Number) -> Number:
    if not other:
        raise ZeroDivisionError
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one / other
    return floating(one) / floating(other)


def powered(base: Number, exponent: Number) -> Number:
    mp = context()
    if isinstance(base, Fraction) and is_whole(exponent):
        bits = max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(int(exponent))
        if not base and exponent < 0:
            raise ZeroDivisionError
        if bits <= LARGEST_BITS or base in (0, 1, -1):
            return base ** (int(exponent) if base not in (0, 1, -1) else int(exponent) % 2 or 2 * (exponent != 0))
    large = abs(floating(exponent)) * (abs(mp.log(abs(floating(base)))) if base else 0)
    if mp.isinf(floating(exponent)) or mp.isinf(floating(base)) or large > LARGEST_POWER:
        raise Undecided("too large")
    return mp.power(floating(base), int(exponent) if is_whole(exponent) else floating(exponent))


def rooted(inner: Number, degree: Number) -> Number:
    """The real root if there is one."""
    if not is_whole(degree) or not 0 < degree < 1000:
        raise Undecided("a root of another degree")
    if is_real(inner) and inner < 0 and int(degree) % 2:
        return -rooted(-inner, degree)
    if degree == 2 and isinstance(inner, Fraction) and inner >= 0:
        above, below = isqrt(inner.numerator), isqrt(inner.denominator)
        if above**2 == inner.numerator and below**2 == inner.denominator:
            return Fraction(above, below)
    mp = context()
    return mp.root(floating(inner), int(degree))


def binomial(above: Number, below: Number) -> Number:
    if not (is_whole(above) and is_whole(below) and 0 <= below <= above <= LARGEST_FACTORIAL):
        raise Undecided("a binomial coefficient that is not computed")
    return Fraction(comb(int(above), int(below)))


def called(name: str, argument: Number) -> Number:
    mp = context()
    if name == "factorial":
        if is_whole(argument) and 0 <= argument <= LARGEST_FACTORIAL:
            return Fraction(factorial(int(argument)))
        if not is_real(argument) or argument < 0 or argument > 10**10:
            raise Undecided("a factorial that is not computed")
        return bounded(mp.factorial(floating(argument)))
    if name == "abs":
        return abs(argument)
    if name in ("floor", "ceil"):
        if not isinstance(argument, Fraction):
            raise Undecided("a floor of digits")
        return Fraction(argument.__floor__() if name == "floor" else argument.__ceil__())
    number = floating(argument)
    if name not in PRECISE:
        raise Undecided(name)
    if abs(number) > (LARGEST_POWER if name in ("exp", "sinh", "cosh") else mp.mpf(10) ** 20) and name != "log":
        raise Undecided("too large")
    if name == "log" and (not number or mp.isinf(number)):
        raise Undecided("a logarithm of 0")
    found = getattr(mp, name)(number)
    noise = name in ("sin", "cos", "tan") and abs(number) > 0.001 and abs(found) < mp.mpf(10) ** -(AGREEING + 20)
    return Fraction(0) if noise else bounded(found)


def is_whole(number: Number) -> bool:
    return isinstance(number, Fraction) and number.denominator == 1


def is_real(number: Number) -> bool:
    return isinstance(number, Fraction) or not isinstance(number, context().mpc)


def same_number(one: Number, other: Number) -> bool:
    """Exactly if both are exact, else to AGREEING digits."""
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one == other
    mp = context()
    one, other = floating(one), floating(other)
    if mp.isinf(one) or mp.isinf(other):
        return bool(one == other)
    return bool(abs(one - other) <= max(abs(one), abs(other)) * mp.mpf(10) ** -AGREEING)


PRECISE = frozenset(
    ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "asin", "acos", "atan", "log", "exp")
)
OPERATIONS: dict[str, Callable[..., Number]] = {
    **{"+": added, "-": subtracted, "*": multiplied, "/": divided, "^": powered},
    **{"root": rooted, "binomial": binomial},
}
