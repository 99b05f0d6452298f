r"""The final answer of a reply, and the number or the letter in an answer.

    in a box      the inside of the last \boxed{...} whose braces are balanced
    short         without such a box, the text after `= ` in the last line that begins with it
    published     only the last 100 characters are read, and the last \boxed{ in them decides, closed or not

Replies are untrusted: each function takes time linear in its text, and numbers have at most LONGEST_NUMBER digits and
exponents of at most LARGEST_EXPONENT.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from rla.text import after_thinking

BOX = "\\boxed{"
PUBLISHED_WINDOW = 100  # characters, of which the published code first keeps the last 300
SHORT = "= "
LONGEST_NUMBER = 1000
LARGEST_EXPONENT = 1000
LONGEST_LETTER = 200
MARKS = re.compile(r"\\boxed ?\{|\\.|[{}]", re.DOTALL)  # `\{` is a character, not a brace
PLAIN = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,9})?", re.ASCII | re.IGNORECASE)
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?", re.ASCII)
WRAPPED = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|operatorname|mbox) ?\{([^{}]*)\}")
FRACTION = re.compile(r"\\frac ?(?:\{([^{}]*)\}|(\d)) ?(?:\{([^{}]*)\}|(\d))", re.ASCII)
DROPPED = re.compile(r"\\left(?![a-zA-Z])|\\right(?![a-zA-Z])|\\displaystyle|\\[!,;: ()\[\]]|\\quad|(?<!\\)\$")
BOLD = re.compile(r"^\s*\*\*((?:(?!\*\*).)+)\*\*\s*$", re.DOTALL)  # around the whole text; elsewhere it is a power
REPLACED = (
    *((r"\dfrac", r"\frac"), (r"\tfrac", r"\frac"), (r"\$", ""), (r"\%", "%")),
    *(("{,}", ","), ("\u2212", "-"), ("~", " ")),
)
# Digits with a gap between them are several numbers and not one, except groups of three.
GAP_IN_DIGITS = re.compile(r"(?<=[0-9])(?:\s+|\\[,;: ](?![0-9]{3}(?![0-9])))(?=[0-9])")
AROUND = " \t\r\n()[]{}.:"
# A letter and its option's text: A) Paris, (A) Paris, A. Paris, A: Paris. "A or B" does not match.
LETTER_AND_TEXT = re.compile(r"[(\[]?([A-Za-z])(?:[)\].:]|\s+[-\u2013\u2014])\s*(\S.*)", re.DOTALL)
LED = re.compile(
    r"(?:the\s+)?(?:correct\s+)?(?:answer|option|choice)(?:\s+is)?\s*:?\s*(?=[(\[]?[a-z](?![a-z]))", re.IGNORECASE
)
OPTION = re.compile(r"(?:^|(?<=\s))[(\[]?([A-J])[).:\]](?=\s)")
LONGEST_WORDS = 5000


def final_answer(reply: str, *, window: int = 0) -> str | None:
    """The answer of a reply, or None. With a `window` only that many characters at its end are read."""
    reply = after_thinking(reply)
    if window:
        return _published_box(reply[-window:])
    box = _last_box(reply)
    return box if box is not None else _short(reply)


def _published_box(end: str) -> str | None:
    start = end.rfind(BOX)
    depth = 1
    for place in range(start + len(BOX), len(end)) if start >= 0 else ():
        depth += (end[place] == "{") - (end[place] == "}")
        if not depth:
            return end[start + len(BOX) : place]
    return None


def _last_box(reply: str) -> str | None:
    """Of the closed boxes, the one that begins last."""
    opened: list[tuple[int, bool]] = []  # start of the inside, and whether it belongs to a box
    found: tuple[int, int] | None = None
    for mark in MARKS.finditer(reply):
        if mark[0] == "}":
            start, boxed = opened.pop() if opened else (-1, False)
            if boxed and (found is None or start > found[0]):
                found = (start, mark.start())
        elif mark[0][-1] == "{" and mark[0] != "\\{":
            opened.append((mark.end(), len(mark[0]) > 1))
    return None if found is None else reply[found[0] : found[1]]


def _short(reply: str) -> str | None:
    start = 0 if reply.startswith(SHORT) else -1
    start = max(start, reply.rfind("\n" + SHORT) + 1 or -1)
    return None if start < 0 else reply[start + len(SHORT) :].partition("\n")[0].strip()


def plain_latex(text: str) -> str:
    r"""The text without typesetting: spaces, `$`, `\left`, `\text{}`; a plain `\frac{a}{b}` becomes a/b."""
    text = BOLD.sub(r"\1", text)
    for old, new in REPLACED:
        text = text.replace(old, new)
    text = GAP_IN_DIGITS.sub("_", text)
    text = FRACTION.sub(_quotient, WRAPPED.sub(r"\1", DROPPED.sub("", text)))
    return "".join(text.split()).removesuffix(".")


def _quotient(found: re.Match[str]) -> str:
    above, below = found[1] or found[2] or "", found[3] or found[4] or ""
    plain = all(part.isascii() and part.isalnum() for part in (above, below))
    written = f"{above}/{below}" if plain else f"({above})/({below})"
    before, after = found.string[: found.start()].rstrip()[-1:], found.string[found.end() :].lstrip()[:1]
    beside = before.isalnum() or after.isalnum() or before in ("}", ")") or after in ("{", "(", "\\")
    # part of a mixed number, or a factor, so not the quotient of the whole text
    return f"({written})" if beside else written


def number_in(text: str) -> Fraction | None:
    """The number that the text is: 42, -1,234.5, 3/4, 6.02e23, also in LaTeX; None for any other text."""
    if len(text) > LONGEST_NUMBER:
        return None
    above, bar, below = plain_latex(text).partition("/")
    if not bar:
        return _plain_number(above)
    numerator, denominator = _plain_number(above), _plain_number(below)
    return None if numerator is None or not denominator else numerator / denominator


def _plain_number(text: str) -> Fraction | None:
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    if THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    if not PLAIN.fullmatch(text):
        return None
    digits, _, exponent = text.lower().partition("e")
    return None if abs(int(exponent or 0)) > LARGEST_EXPONENT else Fraction(digits) * Fraction(10) ** int(exponent or 0)


def options_in(question: str) -> dict[str, str]:
    """The options in a question, text by letter, from its last list that begins with A: (A) or A. or A: before each."""
    marks: list[re.Match[str]] = []
    for mark in OPTION.finditer(question):
        if mark[1] == "A":
            marks = [mark]
        elif marks and mark[1] == chr(ord("A") + len(marks)):
            marks.append(mark)
    ends = [mark.start() for mark in marks[1:]] + [len(question)]
    texts = [question[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=False)]
    if len(texts) < 2:
        return {}
    texts[-1] = texts[-1].partition("\n")[0].strip()
    return {mark[1]: text for mark, text in zip(marks, texts, strict=True)}


def choice_in(answer: str, options: Mapping[str, str]) -> str | None:
    """The letter of the option that an answer chooses: by its letter, its text, or both if they belong together."""
    if len(answer) > LONGEST_WORDS:
        return None
    words = plain_words(answer)
    words = LED.sub("", words, count=1) if LED.match(words) else words
    letter = letter_in(words)
    if letter is not None and (letter in options or not options):
        return letter
    named = {one: plain_words(text).casefold() for one, text in options.items()}
    alike = [one for one, text in named.items() if text and text == words.casefold()]
    if alike:
        return alike[0] if len(alike) == 1 else None
    found = LETTER_AND_TEXT.fullmatch(words)
    if found is None:
        return None
    letter, said = found[1].upper(), found[2].strip().casefold()
    return letter if letter in named and named[letter] == said else None


def plain_words(text: str) -> str:
    """The words of a text without typesetting, and without a dot at the end."""
    text = WRAPPED.sub(r"\1", BOLD.sub(r"\1", DROPPED.sub(" ", text))).replace("**", "")
    return " ".join(text.split()).removesuffix(".").strip()


def letter_in(text: str) -> str | None:
    """The capital of the one letter that the text is, in brackets or with a dot; None for any other text."""
    if len(text) > LONGEST_LETTER:
        return None
    letter = plain_latex(text).strip(AROUND)
    return letter.upper() if len(letter) == 1 and letter.isascii() and letter.isalpha() else None
