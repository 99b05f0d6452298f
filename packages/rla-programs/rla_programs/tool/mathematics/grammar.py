r"""The trees of expressions in LaTeX or program notation, such as `\frac{1}{2}` and `7*sin(pi*x/5)+1`.

("number", Fraction)   ("symbol", name)   ("constant", name)   ("call", name, Node)   ("+", Node, Node)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from rla_programs.tool.mathematics.tokens import (
    CONSTANTS,
    FUNCTIONS,
    GREEK,
    NotMathematics,
    Token,
    exact_decimal,
    tokens_of,
)

MOST_NESTED = 60
DERIVATIVE = re.compile(r"\{d(\^.*)?[a-zA-Z]?\}\{d[a-zA-Z](\^.*)?\}")
Node = tuple[Any, ...]

ALIASES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "ln": "log"}
INVERSE = {"sin": "asin", "cos": "acos", "tan": "atan"}
FRACTIONS = ("frac", "dfrac", "tfrac", "cfrac")
TIMES = ("cdot", "times", "ast", "star")
DECORATIONS = ("overline", "bar", "hat", "vec", "tilde", "mathbb", "mathcal", "overrightarrow", "overleftrightarrow")
CLOSING = {"(": ")", "[": "]", "{": "}", "\\lfloor": "\\rfloor", "\\lceil": "\\rceil", "\\lvert": "\\rvert", "|": "|"}


def expression_of(text: str) -> Node:
    """The tree of an expression. Raises NotMathematics."""
    parser = _Parser(tokens_of(text))
    node = parser.sum()
    if parser.rest:
        raise NotMathematics(parser.rest[0].text)
    return node


class _Parser:
    """Recursive descent with a depth of at most MOST_NESTED."""

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
            raise NotMathematics(self.peek().text or "the end")

    def sum(self) -> Node:
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise NotMathematics("nested too deeply")
        node = self.product()
        while self.peek().text in ("+", "-"):
            sign = self.peek().text
            self._place += 1
            node = (sign, node, self.product())
        if self.take("\\over"):
            node = ("/", node, self.sum())
        elif self.take("\\choose"):
            node = ("binomial", node, self.sum())
        self._depth -= 1
        return node

    def product(self) -> Node:
        """Also for adjacent factors, which bind like factors with a sign: 1/2x is half of x."""
        node = self.signed()
        while True:
            if self.take("*", *(f"\\{name}" for name in TIMES)):
                node = ("*", node, self.signed())
            elif self.take("/", "\\div"):
                node = ("/", node, self.signed())
            elif self.begins():
                if self.peek().kind == "number" and self.peek(1).text != "!":
                    raise NotMathematics("a number beside a factor")
                node = ("*", node, self.power())
            else:
                return node

    def begins(self) -> bool:
        """Whether a factor begins here."""
        token = self.peek()
        if token.kind == "command":
            return token.text[1:] not in ("rfloor", "rceil", "rvert", "div", "over", "choose", *TIMES)
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
            self._depth += 1
            if self._depth > MOST_NESTED:
                raise NotMathematics("nested too deeply")
            exponent = self.group() if self.peek().text == "{" else self.signed_atom()
            self._depth -= 1
            node = self.postfix(("^", node, exponent))
        return ("*", node, ("degree",)) if self.take("\u00b0") else node

    def signed_atom(self) -> Node:
        """An exponent without braces: one digit of several in LaTeX, but the whole number in a program."""
        if self.take("-"):
            return ("-", ("number", Fraction(0)), self.power())
        self.take("+")
        return self.power()

    def postfix(self, node: Node) -> Node:
        while self.take("!"):
            node = ("call", "factorial", node)
        if self.peek().text in ("!!", "'"):
            raise NotMathematics(self.peek().text)
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
        r"""The argument of a command without braces: `\frac12` is 1/2, `\sqrt 12` is the root of 1, and then 2."""
        token = self.peek()
        if token.kind == "number" and token.text.isdigit() and len(token.text) > 1:
            self._tokens[self._place] = Token("number", token.text[1:], False)
            return ("number", Fraction(token.text[0]))
        if token.kind == "name" and len(token.text) == 1 and self.peek(1).kind == "number":
            self._place += 1  # a letter is one token like a digit: \frac n2 is n/2
            return ("constant", token.text) if token.text in CONSTANTS else ("symbol", token.text)
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
        raise NotMathematics(token.text or "the end")

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
            raise NotMathematics(period)
        places = len(text.partition(".")[2])
        return ("number", value + Fraction(int(period), (10 ** len(period) - 1) * 10**places))

    def command(self, name: str) -> Node:
        if name in FRACTIONS:
            begun = self._place
            node = ("/", self.group(), self.group())
            quotient = "".join(token.text for token in self._tokens[begun : self._place])
            return ("symbol", quotient) if DERIVATIVE.fullmatch(quotient) else node
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
                raise NotMathematics("the end")
            yield self.peek()
            self._place += 1

    def named(self, name: str) -> Node:
        if name in FUNCTIONS or name in ("max", "min"):
            return self.function(ALIASES.get(name, name))
        if name in CONSTANTS and self.peek().text != "_":
            return ("constant", CONSTANTS[name])
        if len(name) > 1 and name not in GREEK:
            raise NotMathematics(name)
        if name in ("f", "g") and self.peek().text == "(":  # a function with this name, not a factor
            begun = self._place
            self.group()
            name += "".join(token.text for token in self._tokens[begun : self._place])
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
            raise NotMathematics("a digit behind a letter")
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
                raise NotMathematics("two arguments")
        else:
            inner = self.argument()
        node: Node = ("root", inner, ("number", Fraction(2))) if name == "sqrt" else ("call", name, inner)
        if base is not None:
            node = ("/", node, ("call", "log", base))
        return ("^", node, exponent) if exponent is not None else node

    def argument(self) -> Node:
        """Adjacent factors, up to the next function: sin 2x cos y is a product of two."""
        node = self.power() if self.begins() or self.peek().text == "|" else self.signed()
        while self.begins() and self.peek().text.lstrip("\\") not in FUNCTIONS and self.peek().text != "(":
            if self.peek().kind == "number":
                raise NotMathematics("a number beside a factor")
            node = ("*", node, self.power())
        return node

    def series(self, name: str) -> Node:
        begun = self._place
        self.need("_")
        self.need("{")
        variable = self.peek()
        self._place += 1
        self.need("=")
        low = self.sum()
        self.need("}")
        self.need("^")
        high, term = self.group(), self.product()
        if any(token.text in ("\\sum", "\\prod") for token in self._tokens[begun : self._place]):
            raise NotMathematics("a series in a series")
        return (name, variable.text, low, high, term)
