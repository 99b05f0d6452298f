"""Strings that act in chat templates or stand for pictures, broken in texts that people or models wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rla.folding import broken, folded

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CONTROL = re.compile(
    r"<[|\uff5c]|</?(?:s|think)>|<(?:bos|eos|pad)>|<(?:start|end)_of_turn>|<</?SYS>>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]",
    re.IGNORECASE,
)
MARKUP = re.compile(r"[<\[]+[^\s<>\[\]]+[>\]]+")
PLACEHOLDER = re.compile(
    r"<(?=/?(?:image|img|video|vision|start_of_image|end_of_image|image_soft_token|audio)[\w|]*>)|\[(?=/?IMG)",
    re.IGNORECASE,
)

AS_CONTROL = re.compile(r"<[|\uff5c].+[|\uff5c]>", re.DOTALL)  # how control tokens are written, be they special or not


def neutral(text: str) -> str:
    """`text` with the control strings of common chat templates broken: which of them act, the server alone knows."""
    return CONTROL.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)


def plain_beside_pictures(text: str) -> str:
    """`neutral`, and nothing in it stands for a picture either: `< image>`."""
    return PLACEHOLDER.sub(lambda found: f"{found[0]} ", neutral(text))


def plain_headers(parts: Iterable[str], control: Sequence[str]) -> list[str]:
    """What begins a turn in `parts`, the texts that a template prints between contents, although it is plain text.

    A header with a control token of its own is safe, because no content becomes one. The tokens that a part begins with
    are not such tokens: they end the turn before. Raises ValueError for a part that is nothing but white space.
    """
    found: dict[str, None] = {}
    for part in parts:
        rest, leading = part.lstrip(), 0
        while first := next((string for string in control if rest.startswith(string)), ""):
            rest, leading = rest.removeprefix(first), leading + 1
        if any(string in rest for string in control) or (leading > 1 and rest.strip().isalnum()):
            continue  # the second token begins the turn: <|end|><|start|>assistant
        if not part.strip():
            raise ValueError("a turn begins with nothing but white space")
        for line in filter(str.strip, rest.splitlines(keepends=True)):
            headers = MARKUP.findall(line) or [line.strip()]
            if not line.endswith("\n") and any(map(words_alone, headers)):
                raise ValueError(f"a turn begins with plain words, {line.strip()!r}, on the line of its content,")
            found |= dict.fromkeys(headers)
    return list(found)


class PlainHeaders:
    """Breaks headers in contents, in any case: `< |user|>`, `[ INST]`, `USER :`. One of words alone is a header only as
    a line of its own, which gets a mark: `| user`.
    """

    def __init__(self, headers: Iterable[str]) -> None:
        forms = [header_form(folded(header)) for header in headers]
        self._pattern = re.compile("|".join(forms), re.MULTILINE) if forms else None

    def broken(self, text: str) -> str:
        if self._pattern is None:
            return text
        return broken(text, self._pattern, lambda found: " " if found[0].strip() else "| ")


def words_alone(header: str) -> bool:
    """Whether a header has nothing but its place to tell it from any other words."""
    return header.replace(" ", "").isalnum()


def header_form(header: str) -> str:
    """A pattern that ends where the header is to be broken."""
    if words_alone(header):
        return rf"^[ \t]*(?={re.escape(header)}[ \t]*$)"
    cut = len(header) - 1 if header[0].isalnum() else 1
    edge = r"(?<!\w)" if header[0].isalnum() else ""
    return rf"{edge}{re.escape(header[:cut])}(?={re.escape(header[cut:])})"


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """id -> string of every special token except "unknown", which plain text may well become, and of every other token
    that is written as one: in DeepSeek's tokenizers those that begin a turn are not marked as special.
    """
    control = {
        int(index): token.content
        for index, token in tokenizer.added_tokens_decoder.items()
        if token.special or AS_CONTROL.fullmatch(token.content)
    }
    for index, string in zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True):
        control[int(index)] = str(string)
    if tokenizer.unk_token_id is not None:
        control.pop(int(tokenizer.unk_token_id), None)
    return control
