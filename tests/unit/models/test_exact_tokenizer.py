"""The tokenizer of exact texts: whatever is encoded comes back, and nothing in it is a control token."""

from __future__ import annotations

import pytest

from rla.llm.chat import ChatFormat
from rla.models.init import OFTEN, new_tokenizer

PROGRAM = "def f(n):\n    if n > 9:\n        return n * 12\n    return n\n"
FORMAT = ChatFormat(new_tokenizer([PROGRAM] * OFTEN, context=64, exact=True))


@pytest.mark.parametrize(
    "text", [PROGRAM, "", "  \t\r\n\n  X", "1234567", "é∀🙂", "<end><pad><assistant>", "if  n>9 :\n\n\n    x"]
)
def test_texts_come_back_unchanged(text: str) -> None:
    ids = FORMAT.encode(text)
    assert FORMAT.decode(ids) == text
    assert not set(ids) & set(FORMAT.tokenizer.all_special_ids)


def test_frequent_pieces_and_short_numbers_are_one_token() -> None:
    assert len(FORMAT.encode("\n    return n * 12")) == 5 + 1  # the space before a number is its own
    assert len(FORMAT.encode("77")) == 1 and len(FORMAT.encode("777")) == 3
    assert FORMAT.encode("77")[0] == FORMAT.encode("x77")[1]


def test_the_same_texts_give_the_same_tokenizer() -> None:
    again = new_tokenizer([PROGRAM] * OFTEN, context=64, exact=True)
    assert again.get_vocab() == FORMAT.tokenizer.get_vocab()
