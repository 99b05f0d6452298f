r"""Whether two answers are the same mathematics: numbers, lists, sets, intervals, equations, matrices, words.

An answer is taken apart (`reading`) and compared part by part (`same_mathematics`), single expressions by value
(`expressions`).

    numbers      exactly; of a rounded decimal at least FEWEST_DIGITS digits have to be given, and be right
    lists        1, 2 and {1, 2} in any order, (1, 2) in this one; the brackets of intervals count
    names        x = 5 is 5 unless the truth names another symbol; 11 = 12 is not 12
    relations    x > 2 is 2 < x and (2, \infty); equations are the same if both hold at the same points
    units        those that are known are left out if one side names none; 50% is 50 for a truth in percent, and 0.5
    dots         1, 2, \ldots is the same text or nothing
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from rla.envs.tool.answer_reading import plain_latex
from rla.envs.tool.expressions import (
    Node,
    Unreadable,
    expression,
    floating,
    is_real,
    proportional,
    same_expression,
    symbols_in,
    value,
)

FEWEST_DIGITS = 6  # digits of a decimal that stands for a number that it does not equal
MOST_PARTS = 200
DEEPEST = 20
WORD_BEGINS, WORD_ENDS = "\ue000", "\ue001"  # around text that was in \text{...}
UNICODE = {
    **{"\u2212": "-", "\u2013": "-", "\u2012": "-", "\u00d7": "*", "\u00b7": "*", "\u22c5": "*", "\u2217": "*"},
    **{"\u00f7": "/", "\u2044": "/", "\u2215": "/", "\u221a": "\\sqrt ", "\u03c0": "\\pi ", "\u221e": "\\infty "},
    **{"\u2264": "\\le ", "\u2265": "\\ge ", "\u2260": "\\ne ", "\u222a": "\\cup ", "\u2208": "\\in "},
    **{"\u00b1": "\\pm ", "\u2026": "\\ldots ", "\u2032": "'", "\u00a0": " ", "\u202f": "\\,", "\u2009": "\\,"},
    **{"\u03b8": "\\theta ", "\u03b1": "\\alpha ", "\u03b2": "\\beta ", "\u03bb": "\\lambda ", "\u03c6": "\\phi "},
    **{"\u00b2": "^{2}", "\u00b3": "^{3}", "\u2103": "\u00b0C", "\u20ac": "\\$", "\u00a3": "\\$"},
}
TYPESET = re.compile(
    r"\\left(?![a-zA-Z])\.?|\\right(?![a-zA-Z])\.?|\\[bB]igg?[lr]?(?![a-zA-Z])|\\displaystyle|\\textstyle|\\limits"
    r"|\\(?:quad|qquad)(?![a-zA-Z])|(?<!\\)\\[!;: ()]|(?<!\\)\\\[|(?<!\\)\\\](?!\d)|(?<!\\)\$|~"
)
TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|rm|bf|operatorname|mbox|emph|textnormal|mathsf)\*? ?"
    r"\{([^{}]*)\}"
)
RENAMED = (
    (re.compile(r"\\(?:leqslant|leq|le)(?![a-zA-Z])"), "\u2264"),
    (re.compile(r"\\(?:geqslant|geq|ge)(?![a-zA-Z])"), "\u2265"),
    (re.compile(r"\\(?:neq|ne)(?![a-zA-Z])"), "\u2260"),
    (re.compile(r"\\lt(?![a-zA-Z])"), "<"),
    (re.compile(r"\\gt(?![a-zA-Z])"), ">"),
    (re.compile(r"<="), "\u2264"),
    (re.compile(r">="), "\u2265"),
    (re.compile(r"!=(?!=)"), "\u2260"),
    (re.compile(r"\\in(?![a-zA-Z])"), "\u2208"),
    (re.compile(r"\\(?:cup|bigcup)(?![a-zA-Z])"), "\u222a"),
    (re.compile(r"\\(?:lbrace)(?![a-zA-Z])|\\\{"), "\u27ea"),
    (re.compile(r"\\(?:rbrace)(?![a-zA-Z])|\\\}"), "\u27eb"),
    (re.compile(r"\\(?:langle)(?![a-zA-Z])"), "("),
    (re.compile(r"\\(?:rangle)(?![a-zA-Z])"), ")"),
    (re.compile(r"\\(?:degree|degrees)(?![a-zA-Z])"), "\u00b0"),
    (re.compile(r"\^ ?(?:\\circ(?![a-zA-Z])|\{ ?\\circ ?\})"), "\u00b0"),
    (re.compile(r"\\(?:lvert|rvert|vert|mid)(?![a-zA-Z])"), "|"),
    (re.compile(r"\\(?:varnothing|emptyset)(?![a-zA-Z])|\u2205"), "\u27ea\u27eb"),
    (re.compile(r"\\mathbb\{R\}|\u211d"), r"(-\\infty,\\infty)"),
)
DOTS = re.compile(r"\\[lcvd]?dots[a-z]?(?![a-zA-Z])|\.\.+")
THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
POWER = r"(\^\s*\{?[23]\}?)?"
SPELLED_UNIT = re.compile(rf"(.*\S)\s*{WORD_BEGINS}\s*([^{WORD_ENDS}]*){WORD_ENDS}\s*{POWER}", re.DOTALL)
# A single letter is a unit only behind a number and a space: 5 m, but not 5m or 2x m.
BARE_UNIT = re.compile(
    rf"((?:.*[\d)}}\]!](?=\s*[a-zA-Z]{{2}}))|(?:[-+]?[\d.,/]+(?=\s+[a-zA-Z](?:[/ ^]|$))))"
    rf"\s*((?:[a-zA-Z]+(?:/[a-zA-Z]+)?\.?\s?)+)\s*{POWER}",
    re.DOTALL,
)
NUMERIC = re.compile(r"[-+]?[\d.,/\s]+", re.ASCII)
SCALED = r"(?:e|\s*(?:\*|\\times|\\cdot)\s*10\s*\^\s*)"
MIXED = re.compile(r"([-+]?)\s*(\d+)\s+(\d+)\s*/\s*(\d+)")
DECIMAL = re.compile(rf"[-+]?(\d*)\.(\d+)(?:{SCALED}\{{?([-+]?\d{{1,4}})\}}?)?", re.IGNORECASE)
NAMED = (
    (re.compile(r"\\(?:leqslant|leq|le)(?![a-zA-Z])"), "\u2264"),
    (re.compile(r"\\(?:geqslant|geq|ge)(?![a-zA-Z])"), "\u2265"),
    (re.compile(r"\\(?:neq|ne)(?![a-zA-Z])"), "\u2260"),
    (re.compile(r"\\lt(?![a-zA-Z])"), "<"),
    (re.compile(r"\\gt(?![a-zA-Z])"), ">"),
    (re.compile(r"<="), "\u2264"),
    (re.compile(r">="), "\u2265"),
    (re.compile(r"!=(?!=)"), "\u2260"),
    (re.compile(r"\\in(?![a-zA-Z])"), "\u2208"),
    (re.compile(r"\\(?:cup|bigcup)(?![a-zA-Z])"), "\u222a"),
    (re.compile(r"\\(?:lbrace)(?![a-zA-Z])|\\\{"), "\u27ea"),
    (re.compile(r"\\(?:rbrace)(?![a-zA-Z])|\\\}"), "\u27eb"),
    (re.compile(r"\\(?:langle)(?![a-zA-Z])"), "("),
    (re.compile(r"\\(?:rangle)(?![a-zA-Z])"), ")"),
    (re.compile(r"\\(?:degree|degrees)(?![a-zA-Z])"), "\u00b0"),
    (re.compile(r"\^ ?(?:\\circ(?![a-zA-Z])|\{ ?\\circ ?\})"), "\u00b0"),
    (re.compile(r"\\(?:lvert|rvert|vert|mid)(?![a-zA-Z])"), "|"),
    (re.compile(r"\\(?:varnothing|emptyset)(?![a-zA-Z])|\u2205"), "\u27ea\u27eb"),
    (re.compile(r"\\mathbb\{R\}|\u211d"), r"(-\\infty,\\infty)"),
)
DOTS = re.compile(r"\\[lcvd]?dots[a-z]?(?![a-zA-Z])|\.\.+")
THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
POWER = r"(\^\s*\{?[23]\}?)?"
SPELLED_UNIT = re.compile(rf"(.*\S)\s*{WORD_BEGINS}\s*([^{WORD_ENDS}]*){WORD_ENDS}\s*{POWER}", re.DOTALL)
# A single letter is a unit only behind a number and a space: 5 m, but not 5m or 2x m.
BARE_UNIT = re.compile(
    rf"((?:.*[\d)}}\]!](?=\s*[a-zA-Z]{{2}}))|(?:[-+]?[\d.,/]+(?=\s+[a-zA-Z](?:[/ ^]|$))))"
    rf"\s*((?:[a-zA-Z]+(?:/[a-zA-Z]+)?\.?\s?)+)\s*{POWER}",
    re.DOTALL,
)
NUMERIC = re.compile(r"[-+]?[\d.,/\s]+", re.ASCII)
SCALED = r"(?:e|\s*(?:\*|\\times|\\cdot)\s*10\s*\^\s*)"
MIXED = re.compile(r"([-+]?)\s*(\d+)\s+(\d+)\s*/\s*(\d+)")
DECIMAL = re.compile(
    r"[-+]?(\d*)\.(\d+)(?:(?:e|\s*(?:\*|\\times|\\cdot)\s*10\s*\^\s*)\{?([-+]?\d{1,4})\}?)?", re.IGNORECASE
)
NAMED = re.compile(  # what an equation gives a value to: x, x_1, f(x), f(2), (x, y)
    r"(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_(?:\w|\{\w+\}))?'?(?:\((?:[a-zA-Z]|\d+)(?:,\s*[a-zA-Z])*\))?|\([a-z](?:,\s*[a-z])+\)"
)
WORDS = re.compile(r"[^\W\d_]+(?:[ '\-][^\W\d_]+)*")
RELATIONS = "=<>\u2264\u2265\u2260\u2208"
REVERSED = {"<": ">", ">": "<", "\u2264": "\u2265", "\u2265": "\u2264"}
UNORDERED = frozenset(("", "\u27ea\u27eb"))
OPENERS, CLOSERS = "([{\u27ea", ")]}\u27eb"
MATRIX = re.compile(r"\\begin\{([pbBvV]?(?:small)?matrix|array)\}(?:\{[clr|]*\})?(.*)\\end\{\1\}", re.DOTALL)
KNOWN_UNITS = {
    **dict.fromkeys(("percent",), "%"),
    **dict.fromkeys(("\u00b0", "degree", "degrees", "deg"), "\u00b0"),
    **dict.fromkeys(("$", "dollar", "dollars", "usd", "euro", "euros"), "$"),
    **dict.fromkeys(("cent", "cents"), "cent"),
    **dict.fromkeys(("cm", "centimeter", "centimeters", "centimetre", "centimetres"), "cm"),
    **dict.fromkeys(("mm", "millimeter", "millimeters"), "mm"),
    **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), "m"),
    **dict.fromkeys(("km", "kilometer", "kilometers"), "km"),
    **dict.fromkeys(("in", "inch", "inches"), "in"),
    **dict.fromkeys(("ft", "foot", "feet"), "ft"),
    **dict.fromkeys(("yd", "yard", "yards"), "yd"),
    **dict.fromkeys(("mi", "mile", "miles"), "mi"),
    **dict.fromkeys(("kg", "kilogram", "kilograms"), "kg"),
    **dict.fromkeys(("mg", "milligram", "milligrams"), "mg"),
    **dict.fromkeys(("g", "gram", "grams"), "g"),
    **dict.fromkeys(("lb", "lbs", "pound", "pounds"), "lb"),
    **dict.fromkeys(("ml", "milliliter", "milliliters"), "ml"),
    **dict.fromkeys(("l", "liter", "liters", "litre", "litres"), "l"),
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "day"),
    **dict.fromkeys(("week", "weeks"), "week"),
    **dict.fromkeys(("month", "months"), "month"),
    **dict.fromkeys(("year", "years"), "year"),
    **dict.fromkeys(("mph",), "mi/h"),
    **dict.fromkeys(("unit", "units"), "unit"),
}
POWERS = {"square": "^2", "squared": "^2", "sq": "^2", "cubic": "^3", "cubed": "^3"}


class Rounded(NamedTuple):
    """The digits of a decimal behind the point, those that count, and the exponent of ten."""

    places: int
    digits: int
    exponent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What an answer says. `kind` decides which fields are in use.

    one        `node`, with `unit`; `rounded` if it is a decimal
    list       `parts` between `brackets`; "" for a list without
    union      `parts`
    relation   `parts` with `signs` between them
    matrix     `parts`, each a list of its row; `brackets` "|" for a determinant
    ratio      `parts`
    words      `text`, folded
    raw        `text`, which is the same text or nothing
    """

    kind: str
    parts: tuple[Reading, ...] = ()
    brackets: str = ""
    signs: tuple[str, ...] = ()
    node: Node = ()
    unit: str = ""
    rounded: Rounded | None = None
    text: str = ""


def same_mathematics(truth: str, answer: str) -> bool:
    """Whether the answer is the truth. Undecided and unreadable answers are not."""
    if plain_latex(truth) == plain_latex(answer):
        return True
    try:
        return _same(reading(truth), reading(answer))
    except (ArithmeticError, ValueError, RecursionError):
        return False


def is_readable(truth: str) -> bool:
    """Whether answers can be compared with a truth by value, and not as text alone."""
    try:
        found = reading(truth)
        return _decidable(found)
    except (ArithmeticError, ValueError, RecursionError):
        return False


def _decidable(found: Reading) -> bool:
    if found.kind == "raw":
        return False
    if found.kind == "one" and not symbols_in(found.node):
        value(found.node, {})  # raises where it cannot be computed
    return all(map(_decidable, found.parts))


def reading(text: str) -> Reading:
    """Raises ValueError for an answer that is too long or too deep."""
    return _read(_plain(text), 0)


def _plain(text: str) -> str:
    """One spelling of each sign; text in braces between WORD_BEGINS and WORD_ENDS."""
    for old, new in UNICODE.items():
        text = text.replace(old, new)
    text = "".join(map(_plain_character, text))
    text = text.replace("\\$", "\ue002").replace("\\%", "%").replace("\\#", "#").replace("\\_", "_").replace("{,}", ",")
    if "matrix" not in text and "array" not in text:
        text = text.replace("\\\\", "\\") if re.search(r"\\\\[a-zA-Z]", text) else text.replace("\\\\", " ")
    text = re.sub(r"(\d)\\,(?=\d{3}(?!\d))", r"\1,", TYPESET.sub("", text)).replace("\\,", " ")
    text = TEXT.sub(_word, text)
    for pattern, new in RENAMED:
        text = pattern.sub(new, text)
    bold = re.fullmatch(r"\s*\*\*((?:(?!\*\*).)+)\*\*\s*", text, re.DOTALL)
    return bold[1] if bold else text


def _plain_character(one: str) -> str:
    kind, _, rest = unicodedata.decomposition(one).partition(" ") if ord(one) > 127 else ("", "", "")
    if kind == "<fraction>":
        above, _, below = "".join(chr(int(code, 16)) for code in rest.split()).partition("\u2044")
        return f"\\frac{{{above}}}{{{below}}}"
    if kind == "<super>":
        return "^{" + "".join(chr(int(code, 16)) for code in rest.split()) + "}"
    return unicodedata.normalize("NFKC", one) if kind in ("<wide>", "<font>") else one


def _word(found: re.Match[str]) -> str:
    inside = found[1].strip()
    before = found.string[: found.start()].rstrip()[-1:]
    if before and before in "0123456789)}" and (inside in KNOWN_UNITS or "/" in inside):
        return f"{WORD_BEGINS}{inside}{WORD_ENDS}"
    if re.fullmatch(r"(?:and|or|,|\s)+", inside):
        return ","
    if len(inside) <= 1 or not re.search(r"[^\W\d_]{2}", inside):
        return found[1]
    return f"{WORD_BEGINS}{inside}{WORD_ENDS}"


def _read(text: str, depth: int) -> Reading:
    if depth > DEEPEST:
        raise Unreadable("nested too deeply")
    text = text.strip().strip("\n")
    if DOTS.search(text):
        return _raw(text)
    text = text.removesuffix(".").strip()
    while text.startswith("{") and _closing(text, 0) == len(text) - 1:
        text = text[1:-1].strip()
    matrix = MATRIX.fullmatch(text)
    if matrix:
        return _matrix(matrix, depth)
    if THOUSANDS.fullmatch(_without_unit(text)[0].lstrip("+-")):
        return _one(text)
    alternatives = re.split(r"\s*,?\s(?:and|or)\s", text)
    if all(re.search(r"\d", part) for part in alternatives):
        text = ",".join(alternatives)
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
    """What is neither a list nor a relation."""
    if "\\pm" in text or "\\mp" in text:
        both = (
            text.replace("\\pm", "+").replace("\\mp", "-"),
            text.replace("\\pm", "-").replace("\\mp", "+"),
        )
        return Reading(kind="list", parts=tuple(_read(one, depth + 1) for one in both))
    ratio = _split(text, ":")
    if len(ratio) > 1:
        return Reading(kind="ratio", parts=tuple(_read(part, depth + 1) for part in ratio))
    bare = _bare(text)
    try:
        if not WORDS.fullmatch(bare) or len(bare) == 1 or bare.lower() in ("pi", "inf", "infinity", "oo", "nan"):
            return _one(text)
    except (Unreadable, ArithmeticError):
        pass
    if not WORDS.fullmatch(bare) or bare.lower() == "nan":
        return _raw(text)
    folded = len(bare) > 2 or bare.lower() == "no"  # two letters may be two symbols
    return Reading(kind="words", text=" ".join(bare.casefold().split()) if folded else bare)


def _raw(text: str) -> Reading:
    """The text in one spelling, to be the same or nothing."""
    text = re.sub(r"([_^])\{(\w)\}", r"\1\2", DOTS.sub("...", _bare(text)))
    return Reading(kind="raw", text="".join(text.split()))


def _bare(text: str) -> str:
    return text.replace(WORD_BEGINS, " ").replace(WORD_ENDS, " ").strip()


def _one(text: str) -> Reading:
    """A number or an expression with its unit. Raises Unreadable."""
    bare, unit = _without_unit(text)
    if THOUSANDS.fullmatch(bare.lstrip("+-")):
        bare = bare.replace(",", "")
    mixed = MIXED.fullmatch(bare)
    if mixed and int(mixed[4][:9]):
        bare = f"{mixed[1]}({mixed[2]}+{mixed[3]}/{mixed[4]})"
    if WORD_BEGINS in bare or not bare:
        raise Unreadable(bare)
    decimal = DECIMAL.fullmatch(bare)
    rounded = None
    if decimal:
        digits = (decimal[1] + decimal[2]).lstrip("0")
        rounded = Rounded(len(decimal[2]), len(digits), int(decimal[3] or 0))
    return Reading(kind="one", node=expression(bare), unit=unit, rounded=rounded)


def _without_unit(text: str) -> tuple[str, str]:
    """An expression and the unit in front of it or behind it: $5, 5 cm, 12 square feet, 5 cm^2, 50%, 90 degrees."""
    text = text.strip()
    if "\ue002" in text:
        return text.replace("\ue002", "").strip(), "$"
    if text.endswith("%") or (text.endswith("\u00b0") and NUMERIC.fullmatch(text[:-1])):
        return text[:-1].strip(), text[-1]
    found = SPELLED_UNIT.fullmatch(text) or BARE_UNIT.fullmatch(text)
    if not found:
        return text, ""
    words = found[2].casefold().replace(".", " ").split()
    power = "".join(POWERS[word] for word in words if word in POWERS) or re.sub(r"[\s{}]", "", found[3] or "")
    units = [known_unit(word) for word in words if word not in POWERS]
    if all(units) or found.re is SPELLED_UNIT:
        return found[1].strip(), " ".join(unit or word for unit, word in zip(units, words, strict=False)) + power
    return text, ""


def known_unit(word: str) -> str:
    """The short name of a unit, or of a quotient of two; "" for any other word."""
    parts = [KNOWN_UNITS.get(part, "") for part in word.split("/")]
    return "/".join(parts) if all(parts) and len(parts) < 3 else ""


def _matrix(found: re.Match[str], depth: int) -> Reading:
    rows = [row for row in re.split(r"\\\\(?:\[[^\]]*\])?|\\cr", found[2]) if row.strip() not in ("", "\\hline")]
    cells = [[_read(cell, depth + 1) for cell in row.split("&")] for row in rows]
    if sum(map(len, cells)) > MOST_PARTS:
        raise Unreadable("too many cells")
    parts = tuple(Reading(kind="list", parts=tuple(row), brackets="()") for row in cells)
    return Reading(kind="matrix", parts=parts, brackets="|" if found[1][0] in "vV" else "")


def _relation(text: str, depth: int) -> Reading:
    signs = tuple(sign for sign in _signs(text) if sign in RELATIONS)
    sides = _split(text, RELATIONS)
    if not all(side.strip() for side in sides):
        raise Unreadable("a relation without a side")
    if set(signs) == {"="} and NAMED.fullmatch(sides[-1].strip()) and not NAMED.fullmatch(sides[0].strip()):
        sides.reverse()
    parts = [_read(side, depth + 1) for side in sides]
    name = sides[0].strip()
    if set(signs) == {"="} and (NAMED.fullmatch(name) or WORD_BEGINS in name or is_word(name)):
        symbol = _bare(name).partition("(")[0] or name
        return Reading(kind="relation", parts=tuple(parts), signs=signs, text=symbol)
    return Reading(kind="relation", parts=tuple(parts), signs=signs)


def is_word(name: str) -> bool:
    return len(name) > 1 and WORDS.fullmatch(name) is not None


def _signs(text: str) -> str:
    """The characters that stand in no bracket."""
    depth, found = 0, []
    for character in text:
        depth += (character in OPENERS) - (character in CLOSERS)
        if depth == 0 and character not in CLOSERS:
            found.append(character)
    return "".join(found)


def _split(text: str, at: str) -> list[str]:
    """Parts of a text between signs that stand in no bracket. Raises Unreadable."""
    depth, parts, begun = 0, [], 0
    for place, character in enumerate(text):
        depth += (character in OPENERS) - (character in CLOSERS)
        if character in at and depth == 0:
            parts.append(text[begun:place])
            begun = place + 1
    parts.append(text[begun:])
    if len(parts) > MOST_PARTS:
        raise Unreadable("too many parts")
    return parts


def _closing(text: str, opening: int) -> int:
    """Where the bracket that opens at `opening` is closed, by whichever bracket: [1, 2) is an interval."""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] in OPENERS) - (text[place] in CLOSERS)
        if not depth:
            return place
    return -1


def _same(truth: Reading, answer: Reading) -> bool:
    if "relation" in (truth.kind, answer.kind):
        return _same_relation(truth, answer)
    if truth.kind == answer.kind == "list":
        return _same_list(truth, answer)
    if truth.kind != answer.kind:
        for one, other in ((truth, answer), (answer, truth)):  # a list of one element is that element
            if one.kind == "list" and one.brackets in UNORDERED and len(one.parts) == 1:
                return _same(one.parts[0], other)
        return False
    if truth.kind == "one":
        return _same_one(truth, answer)
    if truth.kind == "union":
        return _same_in_any_order(truth.parts, answer.parts)
    if truth.kind in ("matrix", "ratio"):
        return truth.brackets == answer.brackets and _same_in_order(truth.parts, answer.parts)
    return bool(truth.text) and truth.text == answer.text


def _same_list(truth: Reading, answer: Reading) -> bool:
    for one, other in ((truth, answer), (answer, truth)):
        if one.brackets == "\u27ea\u27eb" and len(one.parts) == 1 and other.brackets == "()":
            return _same(one.parts[0], other)
    kinds = {truth.brackets, answer.brackets}
    if kinds <= UNORDERED:
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
    """Whether a decimal is the other number, rounded to as many digits as it has; few digits stand for themselves."""
    if decimal.rounded is None or (exact.rounded and exact.rounded.digits < decimal.rounded.digits):
        return False
    places, digits, exponent = decimal.rounded
    if digits < FEWEST_DIGITS or (places < FEWEST_DIGITS and digits == FEWEST_DIGITS):
        return False
    wanted, said = value(exact.node, {}), value(decimal.node, {})
    last = Fraction(10) ** (exponent - places)  # one unit of the last digit
    return is_real(wanted) and bool(abs(floating(wanted) - floating(said)) <= floating(last) / 2)


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
    if one and other and _same(one, other):
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
