"""One spelling for each sign of an answer, and its unit. Text in braces is put between WORD_BEGINS and WORD_ENDS."""

from __future__ import annotations

import re
import unicodedata

WORD_BEGINS, WORD_ENDS = "\ue000", "\ue001"  # around text that was in \text{...}
OR = "\u2228"
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
    (re.compile(r"\\(?:lor|vee)(?![a-zA-Z])"), OR),
    (re.compile(r"\\(?:lbrace)(?![a-zA-Z])|\\\{"), "\u27ea"),
    (re.compile(r"\\(?:rbrace)(?![a-zA-Z])|\\\}"), "\u27eb"),
    (re.compile(r"\\(?:langle)(?![a-zA-Z])"), "("),
    (re.compile(r"\\(?:rangle)(?![a-zA-Z])"), ")"),
    (re.compile(r"\\(?:degree|degrees)(?![a-zA-Z])"), "\u00b0"),
    (re.compile(r"\^\s*(?:\\circ(?![a-zA-Z])|\{\s*\\circ\s*\})"), "\u00b0"),
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
NAMED = re.compile(  # the left side of an equation that gives a value: x, x_1, f(x), f(2), (x, y)
    r"(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_(?:\w|\{\w+\}))?'?(?:\((?:[a-zA-Z]|\d+)(?:,\s*[a-zA-Z])*\))?|\([a-z](?:,\s*[a-z])+\)"
)
WORDS = re.compile(r"[^\W\d_]+(?:[ '\-][^\W\d_]+)*")
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
# Behind a number these words change it, or replace it.
NO_UNITS = frozenset(
    (
        *("hundred", "thousand", "million", "billion", "trillion", "dozen", "half", "halves", "third", "thirds"),
        *("quarter", "quarters", "times", "plus", "minus", "over", "factorial", "mod", "modulo", "base", "choose"),
        *("is", "are", "and", "or", "if", "not", "to", "more", "less", "than", "but", "when", "for", "where", "wrong"),
    )
)
LONGEST_UNIT = 6  # words
POWERS = {"square": "^2", "squared": "^2", "sq": "^2", "cubic": "^3", "cubed": "^3"}


def plain_spelling(text: str) -> str:
    """One spelling for each sign; text in braces between WORD_BEGINS and WORD_ENDS."""
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
        return OR if "or" in inside else ","
    if len(inside) <= 1 or not re.search(r"[^\W\d_]{2}", inside):
        return found[1]
    return f"{WORD_BEGINS}{inside}{WORD_ENDS}"


def bare_text(text: str) -> str:
    return text.replace(WORD_BEGINS, " ").replace(WORD_ENDS, " ").strip()


def without_unit(text: str) -> tuple[str, str]:
    """An expression and the unit in front of it or behind it: $5, 5 cm, 12 square feet, 5 cm^2, 50%, 90 degrees."""
    text = text.strip()
    if "\ue002" in text:
        return text.replace("\ue002", "").strip(), "$"
    if text.endswith("%") or (text.endswith("\u00b0") and NUMERIC.fullmatch(text[:-1])):
        return text[:-1].strip(), text[-1]
    found = SPELLED_UNIT.fullmatch(text) or BARE_UNIT.fullmatch(text)
    if not found:
        return text, ""
    words = [word.casefold() if len(word) > 1 or word == "L" else word for word in re.findall(r"[^\s.,;()]+", found[2])]
    power = "".join(POWERS[word] for word in words if word in POWERS) or re.sub(r"[\s{}]", "", found[3] or "")
    units = [_known_unit(word) for word in words if word not in POWERS]
    if not units or len(units) > LONGEST_UNIT or not NO_UNITS.isdisjoint(words):
        return text, ""
    if all(units) or found.re is SPELLED_UNIT:
        return found[1].strip(), " ".join(unit or word for unit, word in zip(units, words, strict=False)) + power
    return text, ""


def _known_unit(word: str) -> str:
    """The short name of a unit, or of a quotient of two; "" for any other word."""
    parts = [KNOWN_UNITS.get(part, "") for part in word.split("/")]
    return "/".join(parts) if all(parts) and len(parts) < 3 else ""


def is_word(name: str) -> bool:
    return len(name) > 1 and WORDS.fullmatch(name) is not None
