"""Texts of models: compared as they look, made fit to be printed and to be stored, and without thoughts. And numbers as
people read them.

A tag in full-width letters, or with a soft hyphen in it, reads like the tag itself to a model, and to some tokenizers.
Thoughts are between `<think>` and `</think>`, or the tags of other families: `[THINK]` (Magistral), `<seed:think>`
(Seed-OSS), `\u25c1think\u25b7` (Kimi), `<|START_THINKING|>` (Command A), `<|channel|>analysis` (gpt-oss).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Any

CONTROL = re.compile(
    r"<[|\uff5c]|</?(?:s|think)>|<(?:bos|eos|pad)>|<(?:start|end)_of_turn>|<</?SYS>>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]",
    re.IGNORECASE,
)
# Joiners, variation selectors and fillers, which have the categories of visible characters.
INVISIBLE = frozenset("\u034f\u115f\u1160\u3164\uffa0\u180b\u180c\u180d\u180f") | set(map(chr, range(0xFE00, 0xFE10)))


@lru_cache(maxsize=4096)
def _folded(sign: str) -> str:
    if sign in INVISIBLE or unicodedata.category(sign) == "Cf":
        return ""
    return unicodedata.normalize("NFKC", sign).casefold()


def folded(text: str) -> str:
    """`text` for comparison: NFKC, case folding, and without invisible characters."""
    return text.lower() if text.isascii() else "".join(map(_folded, text))


def broken(text: str, pattern: re.Pattern[str], mark: Callable[[re.Match[str]], str] = lambda found: " ") -> str:
    """`text` with a mark after every match of `pattern` in the folded text."""
    found = list(pattern.finditer(folded(text)))
    if not found:
        return text
    ends = [place for place, sign in enumerate(text, 1) for _ in _folded(sign)]  # of each folded character
    pieces, start = list[str](), 0
    for one in found:
        end = ends[one.end() - 1] if one.end() else 0
        pieces += [text[start:end], mark(one)]
        start = end
    return "".join([*pieces, text[start:]])


def printable(text: str) -> str:
    """`text` with a space for every control character but the newline (Unicode category C: escape sequences, invisible
    marks, marks that change the direction of writing, halves of surrogate pairs).
    """
    return "".join(" " if unicodedata.category(sign)[0] == "C" and sign != "\n" else sign for sign in text)


def one_line(text: str, limit: int) -> str:
    """`text` without control characters and line ends, cut to `limit` characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= limit else f"{line[: limit - 3].rstrip()}..."


TAG = re.compile(
    r"</?(?:(?:seed:)?think(?:ing)?|thoughts?|reasoning)\s*>|\[/?THINK\]|\u25c1/?think\u25b7|<\|(?:START|END)_THINKING\|>"
    r"|<\|(?:begin|end)_of_thought\|>|<\|channel\|>(?:analysis|commentary|final)",
    re.IGNORECASE,
)
CLOSING = re.compile("/|<.end_|final", re.IGNORECASE)  # found in the tags that end a thought


def after_thinking(text: str) -> str:
    """The text after the last closing tag; empty if a thought is not closed. Text without tags stays unchanged."""
    answer, thinks = 0, False
    for tag in TAG.finditer(text):
        thinks = CLOSING.search(tag[0]) is None
        answer = answer if thinks else tag.end()
    return "" if thinks else text[answer:]


def past_reply(text: str) -> str:
    """An earlier reply without thoughts, as the templates of thinking models put it into a prompt."""
    return after_thinking(text).lstrip("\n")


def open_thought(text: str) -> str:
    """The text from the tag of a thought that is not closed; empty if all are closed."""
    opening = None
    for tag in TAG.finditer(text):
        opening = None if CLOSING.search(tag[0]) else opening or tag
    return text[opening.start() :] if opening else ""


def neutral(text: str) -> str:
    """`text` with the control strings of common chat templates broken; only a server knows which of them it acts on."""
    return CONTROL.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)


_HALF = re.compile("[\ud800-\udfff]")


def whole_text(text: str) -> str:
    """The text with each half of a surrogate pair replaced by U+FFFD; two halves that belong together are joined.

    JSON can write halves, and no UTF-8 file, tokenizer or Parquet column can hold one.
    """
    if _HALF.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_texts(value: Any) -> Any:
    """Nested lists, tuples and dictionaries in which all texts, keys included, are `whole_text`."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, dict):
        return {whole_texts(key): whole_texts(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(whole_texts, value))
    return value


def readable_bytes(count: float) -> str:
    """`107 GB`: three digits, decimal units as disks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.0f} TB" if count >= 99.5 else f"{count:.3g} TB"


def counted(number: int, noun: str) -> str:
    """`1 log`, `2 logs`: for nouns whose plural takes an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float) -> str:
    """8 s, 2 min 5 s, 1 h 3 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
