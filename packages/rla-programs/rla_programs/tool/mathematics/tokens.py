"""Tokens of expressions: numbers, commands of LaTeX, names of functions, constants and symbols, and signs."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

MOST_TOKENS = 500
LONGEST_DECIMAL = 50_000  # digits, with its exponent

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
TOKEN = re.compile(
    r"(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,6}(?![\d.]))?)|(?P<command>\\[a-zA-Z]+)|(?P<name>[a-zA-Z]+)"
    r"|(?P<sign>\*\*|!!|[-+*/^!()\[\]{}|_,'\u00b0=])|(?P<space>\s+)|(?P<other>.)",
    re.ASCII | re.DOTALL,
)
WORDS = sorted({*FUNCTIONS, *CONSTANTS, *(name for name in GREEK if len(name) > 2)} - {"e", "i"}, key=len, reverse=True)
NAME = re.compile("|".join((*WORDS, "[a-zA-Z]")))  # the longest name first


class NotMathematics(ValueError):
    """A text that is not an expression of this grammar."""


class Token(NamedTuple):
    kind: str
    text: str
    spaced: bool  # whether white space precedes it


def tokens_of(text: str) -> list[Token]:
    """Letters that do not form a known name are single symbols. Raises NotMathematics."""
    found: list[Token] = []
    spaced = False
    for match in TOKEN.finditer(text):
        kind, part = str(match.lastgroup), match[0]
        if kind == "other":
            raise NotMathematics(part)
        if kind == "name":
            for name in NAME.findall(part):
                if name == "I" and found and found[-1].text == "*":
                    name = "i"  # in program notation
                found.append(Token("name", name, spaced))
                spaced = False
        elif kind != "space":
            found.append(Token(kind, part, spaced))
        spaced = kind == "space"
    if len(found) > MOST_TOKENS:
        raise NotMathematics("too long")
    return found


def exact_decimal(text: str) -> Fraction:
    digits, _, exponent = text.lower().partition("e")
    if abs(int(exponent or 0)) > LONGEST_DECIMAL or len(digits) > LONGEST_DECIMAL:
        raise NotMathematics("a number that is too long")
    return Fraction(digits.rstrip(".") or "0") * Fraction(10) ** int(exponent or 0)
