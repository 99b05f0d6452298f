"""The word-level tokenizer: what is one token, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rla.models.init import CHAT_TEMPLATE, MAX_NUMBER, new_tokenizer, word_tokenizer

TEXTS = [
    "You are in the middle of a room. Looking quickly around you, you see a cabinet 1, and a desk 2.",
    "Your task is to: put a clean mug in/on desk.",
    "go to cabinet 3",
    "put mug 1 in/on desk 2",
]
TOKENIZER = new_tokenizer(TEXTS, context=128)


def learnt_vocabulary(texts: list[str], written: Sequence[str] = ()) -> list[str]:
    found = word_tokenizer(texts, written=written).get_vocab()
    return sorted(found, key=found.__getitem__)


def ids(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("command", ["go to cabinet 3", "put mug 1 in/on desk 2", "go to desk 99"])
def test_commands_come_back_unchanged(command: str) -> None:
    assert TOKENIZER.decode(ids(command)) == command


def test_sentences_come_back_in_lower_case_with_punctuation_attached() -> None:
    for text in TEXTS:
        assert TOKENIZER.decode(ids(text)) == text.lower()


def test_words_numbers_and_in_on_are_single_tokens() -> None:
    assert TOKENIZER.convert_ids_to_tokens(ids("Put mug 12 in/on desk2.")) == [
        "put",
        "mug",
        "12",
        "in/on",
        "desk",
        "2",
        ".",
    ]


def test_every_number_up_to_99_is_known() -> None:
    numbers = [ids(str(number)) for number in range(MAX_NUMBER + 1)]
    assert all(len(number) == 1 and number[0] != TOKENIZER.unk_token_id for number in numbers)
    assert len({number[0] for number in numbers}) == 100


def test_a_phrase_is_one_token_wherever_it_stands_whole() -> None:
    tokenizer = new_tokenizer(TEXTS, context=128, phrases=["You see", "you see a cabinet"])
    text = "room. you see a desk 1. You see a cabinet 2, you see a cabinets"
    tokens = tokenizer.tokenize(text)
    assert tokens == [
        *["room", ".", "you see", "a", "desk", "1", ".", "you see a cabinet", "2", ","],
        *["you see", "a", "<unk>"],
    ]
    assert tokenizer.decode(tokenizer.encode(text[:41], add_special_tokens=False)) == text[:41].lower()


def test_unknown_words_become_the_unknown_token() -> None:
    assert ids("zebra") == [TOKENIZER.unk_token_id]


def test_vocabulary_is_by_frequency_then_spelling() -> None:
    assert learnt_vocabulary(["b b a c", "c b a"])[-3:] == ["b", "a", "c"]


def test_chat_template_marks_turns() -> None:
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "to"}]
    render = TOKENIZER.apply_chat_template
    assert TOKENIZER.chat_template == CHAT_TEMPLATE
    assert render(messages, tokenize=False) == "<user>go<end><assistant>to<end>"
    assert render(messages[:1], tokenize=False, add_generation_prompt=True) == "<user>go<end><assistant>"


def test_what_has_to_be_written_is_known_and_moves_no_other_word() -> None:
    before = learnt_vocabulary(TEXTS)
    after = learnt_vocabulary(TEXTS, written=["go to desk 2", "score +1"])
    assert after == [*before, "+", "score"]
