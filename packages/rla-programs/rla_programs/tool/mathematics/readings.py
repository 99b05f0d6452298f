"""Parsed answers: numbers and expressions, lists, sets, intervals, relations, matrices, words."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import NamedTuple

from rla_programs.tool.mathematics.grammar import Node, expression_of
from rla_programs.tool.mathematics.spelling import (
    DECIMAL,
    DOTS,
    MIXED,
    NAMED,
    OR,
    THOUSANDS,
    WORD_BEGINS,
    WORDS,
    bare_text,
    is_word,
    plain_spelling,
    without_unit,
)
from rla_programs.tool.mathematics.tokens import FUNCTIONS, GREEK, NotMathematics

MOST_PARTS = 200
DEEPEST = 20
RELATIONS = "=<>\u2264\u2265\u2260\u2208"
REVERSED = {"<": ">", ">": "<", "\u2264": "\u2265", "\u2265": "\u2264"}
JOINED = re.compile(r"\s*,?\s(and|or)\s")
UNORDERED = frozenset(("", "\u27ea\u27eb"))
NAMES = frozenset((*FUNCTIONS, *GREEK))
OPENERS, CLOSERS = "([{\u27ea", ")]}\u27eb"
MATRIX = re.compile(r"\\begin\{([pbBvV]?(?:small)?matrix|array)\}(?:\{[clr|]*\})?(.*)\\end\{\1\}", re.DOTALL)


class Rounded(NamedTuple):
    """The decimal places of a decimal, its significant digits, and the exponent of ten."""

    places: int
    digits: int
    exponent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A parsed answer. `kind` decides which fields are in use.

    one        `node`, with `unit`; `rounded` if it is a decimal
    list       `parts` between `brackets`; "" for a list without
    union      `parts`
    relation   `parts` with `signs` between them
    matrix     `parts`, each a list of its row; `brackets` "|" for a determinant
    ratio      `parts`
    words      `text`, folded; `node` of two or three letters that may be factors
    raw        `text`, which is compared as text only
    """

    kind: str
    parts: tuple[Reading, ...] = ()
    brackets: str = ""
    signs: tuple[str, ...] = ()
    node: Node = ()
    unit: str = ""
    rounded: Rounded | None = None
    text: str = ""


def reading(text: str) -> Reading:
    """Raises ValueError for an answer that is too long or too deep."""
    return _read(plain_spelling(text), 0)


def _read(text: str, depth: int) -> Reading:
    if depth > DEEPEST:
        raise NotMathematics("nested too deeply")
    text = text.strip().strip("\n")
    if DOTS.search(text):
        return _raw(text)
    text = text.removesuffix(".").strip()
    while text.startswith("{") and _closing(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    matrix = MATRIX.fullmatch(text)
    if matrix:
        return _matrix(matrix, depth)
    if THOUSANDS.fullmatch(without_unit(text)[0].lstrip("+-")):
        return _one(text)
    if all(re.search(r"\d", part) for part in JOINED.split(text)[::2]):
        text = JOINED.sub(lambda found: OR if found[1] == "or" else ",", text)
    choices = [choice.strip(" ,") for choice in _split(text, OR)]
    if len(choices) > 1 and all(any(sign in RELATIONS[1:] for sign in _signs(choice)) for choice in choices):
        return Reading(kind="union", parts=tuple(_read(choice, depth + 1) for choice in choices))
    text = text.replace(OR, ",")
    items = _split(text, ",;")
    related = [any(sign in RELATIONS for sign in _signs(item)) for item in items]
    if len(items) > 1 and not (related[0] and not any(related[1:])):
        return Reading(kind="list", parts=tuple(_read(item, depth + 1) for item in items if item.strip()))
    if any(related):
        return _relation(text, depth)
    joined = _split(text, "\u222a")
    if len(joined) > 1:
        return Reading(kind="union", parts=tuple(_read(item, depth + 1) for item in joined))
    if text and text[0] in OPENERS and _closing(text, 0) == len(text) - 1:
        brackets, inside = text[0] + text[-1], _split(text[1:-1], ",;")
        if len(inside) > 1 or text[0] in "[\u27ea":
            parts = tuple(_read(item, depth + 1) for item in inside if item.strip())
            return Reading(kind="list", parts=parts, brackets=brackets)
        if brackets == "()":
            return _read(text[1:-1], depth + 1)
    return _lone(text, depth)


def _lone(text: str, depth: int) -> Reading:
    """A text that is neither a list nor a relation."""
    if "\\pm" in text or "\\mp" in text:
        both = (
            text.replace("\\pm", "+").replace("\\mp", "-"),
            text.replace("\\pm", "-").replace("\\mp", "+"),
        )
        return Reading(kind="list", parts=tuple(_read(one, depth + 1) for one in both))
    ratio = _split(text, ":")
    if len(ratio) > 1:
        return Reading(kind="ratio", parts=tuple(_read(part, depth + 1) for part in ratio))
    bare = bare_text(text)
    try:
        if not WORDS.fullmatch(bare) or len(bare) == 1 or _is_symbolic(bare):
            return _one(text)
    except (NotMathematics, ArithmeticError):
        pass
    if not WORDS.fullmatch(bare) or bare.lower() == "nan":
        return _raw(text)
    folded = len(bare) > 2 or bare.lower() == "no"  # two letters may be two symbols
    product: Node = ()
    if bare.isascii() and bare.islower() and len(bare) < 4 and bare != "no":
        with contextlib.suppress(NotMathematics):
            product = expression_of(bare)
    return Reading(kind="words", text=" ".join(bare.casefold().split()) if folded else bare, node=product)


def _is_symbolic(text: str) -> bool:
    """Whether words are names of mathematics: theta, sin x, infinity."""
    words = [word in NAMES or word.lower() in ("pi", "inf", "infinity", "oo", "nan") for word in text.split()]
    return any(words) and all(known or len(word) == 1 for known, word in zip(words, text.split(), strict=True))


def _raw(text: str) -> Reading:
    """The text in normalised spelling, for comparison as text only."""
    text = re.sub(r"([_^])\{(\w)\}", r"\1\2", DOTS.sub("...", bare_text(text)))
    return Reading(kind="raw", text="".join(text.split()))


def _one(text: str) -> Reading:
    """A number or an expression with its unit. Raises NotMathematics."""
    bare, unit = without_unit(text)
    if THOUSANDS.fullmatch(bare.lstrip("+-")):
        bare = bare.replace(",", "")
    mixed = MIXED.fullmatch(bare)
    if mixed and int(mixed[4][:9]):
        bare = f"{mixed[1]}({mixed[2]}+{mixed[3]}/{mixed[4]})"
    if WORD_BEGINS in bare or not bare:
        raise NotMathematics(bare)
    decimal = DECIMAL.fullmatch(bare)
    rounded = None
    if decimal:
        digits = (decimal[1] + decimal[2]).lstrip("0")
        rounded = Rounded(len(decimal[2]), len(digits), int(decimal[3] or 0))
    return Reading(kind="one", node=expression_of(bare), unit=unit, rounded=rounded)


def _matrix(found: re.Match[str], depth: int) -> Reading:
    rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?|\\cr", found[2]) if row.strip() not in ("", "\\hline")]
    cells = [[_read(cell, depth + 1) for cell in row.split("&")] for row in rows]
    if sum(map(len, cells)) > MOST_PARTS:
        raise NotMathematics("too many cells")
    parts = tuple(Reading(kind="list", parts=tuple(row), brackets="()") for row in cells)
    return Reading(kind="matrix", parts=parts, brackets="|" if found[1][0] in "vV" else "")


def _relation(text: str, depth: int) -> Reading:
    signs = tuple(sign for sign in _signs(text) if sign in RELATIONS)
    sides = _split(text, RELATIONS)
    if not all(side.strip() for side in sides):
        raise NotMathematics("a relation without a side")
    if set(signs) == {"="} and NAMED.fullmatch(sides[-1].strip()) and not NAMED.fullmatch(sides[0].strip()):
        sides.reverse()
    parts = [_read(side, depth + 1) for side in sides]
    name = sides[0].strip()
    if set(signs) == {"="} and (NAMED.fullmatch(name) or WORD_BEGINS in name or is_word(name)):
        symbol = bare_text(name).partition("(")[0] or name
        return Reading(kind="relation", parts=tuple(parts), signs=signs, text=symbol)
    return Reading(kind="relation", parts=tuple(parts), signs=signs)


def _signs(text: str) -> str:
    """The characters outside of all brackets."""
    depth, found = 0, []
    for character in text:
        depth += (character in OPENERS) - (character in CLOSERS)
        if depth == 0 and character not in CLOSERS:
            found.append(character)
    return "".join(found)


def _split(text: str, at: str) -> list[str]:
    """Parts of a text between signs outside of all brackets. Raises NotMathematics."""
    depth, parts, begun = 0, [], 0
    for place, character in enumerate(text):
        depth += (character in OPENERS) - (character in CLOSERS)
        if character in at and depth == 0:
            parts.append(text[begun:place])
            begun = place + 1
    parts.append(text[begun:])
    if len(parts) > MOST_PARTS:
        raise NotMathematics("too many parts")
    return parts


def _closing(text: str, opening: int) -> int:
    """The position of the bracket that closes the one at `opening`, of any kind: [1, 2) is an interval."""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] in OPENERS) - (text[place] in CLOSERS)
        if not depth:
            return place
    return -1
