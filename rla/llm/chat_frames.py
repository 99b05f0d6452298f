"""What a chat template prints around contents, as token ids, and what it makes of the white space around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

PAD = ("\n\t ", " \t\n")  # around contents, to see whether a template keeps it

INSIDE = ("Aa&<'\"\n\n\t  b ", " c\n\n  {{ d }}%}E")  # within contents, to see whether a template changes them


@dataclass(frozen=True, slots=True)
class Trim:
    """Which white space around a content a template leaves out."""

    left: bool
    right: bool

    def applied(self, text: str) -> str:
        text = text.lstrip() if self.left else text
        return text.rstrip() if self.right else text


class ChatFrames(NamedTuple):
    """Ids of what a template prints before, between and after contents, and how it trims each of them."""

    ids: tuple[tuple[int, ...], ...]
    trims: tuple[Trim, ...]
