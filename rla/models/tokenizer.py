"""Tokenizers of new models, learnt from an environment's texts, as ordinary Hugging Face tokenizers.

`build_tokenizer` works on words. Text is lower-cased and split into fixed phrases that its maker names, "in/on", words,
numbers and single punctuation marks; a command such as "put mug 1 in/on desk 2" comes back from its ids unchanged.
Numbers 0 to 99 always have a token of their own.

`build_exact_tokenizer` works on bytes, and gives every text back unchanged. Text is cut into words with the space
before them, numbers, line ends with the indent that follows, and other signs. Pieces that occur often are one token,
others fall back to bytes. Numbers of one or two digits are a piece of their own, longer ones go digit by digit: a value
has one spelling.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

UNKNOWN, PAD, BOS, END = "<unk>", "<pad>", "<bos>", "<end>"
ROLES = ("<system>", "<user>", "<assistant>")
SPECIAL = (UNKNOWN, PAD, BOS, END, *ROLES)
MAX_NUMBER = 99
WORDS = r"in/on|[\p{L}']+|\p{N}+|[^\s\p{L}\p{N}']"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<' + message['role'] + '>' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<end>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<end>' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
PIECES = r"\n *|(?<![0-9])[0-9]{1,2}(?![0-9])|[0-9]| ?[\p{L}_]+| ?[^\s\p{L}0-9_]+| +|\s"
LARGEST = 2048  # pieces that get a token
OFTEN = 24  # occurrences that a piece needs: what was drawn at random stays letters


def _splitter(phrases: Sequence[str]) -> tuple[normalizers.Normalizer, pre_tokenizers.PreTokenizer]:
    """Phrases first, the longest foremost: an environment's turns of speech cost one token each."""
    ordered = sorted({phrase.lower() for phrase in phrases}, key=lambda phrase: (-len(phrase), phrase))
    fixed = "".join(rf"{re.escape(phrase)}(?![\p{{L}}\p{{N}}])|" for phrase in ordered)
    return normalizers.Lowercase(), pre_tokenizers.Split(Regex(fixed + WORDS), behavior="removed", invert=True)


def learnt_vocabulary(texts: Iterable[str], phrases: Sequence[str] = (), written: Iterable[str] = ()) -> list[str]:
    """Special tokens, numbers, then the texts' other pieces, most frequent first, ties by spelling. Last come the
    pieces of `written` that the texts lack: one that is there already keeps its place.
    """
    normalizer, splitter = _splitter(phrases)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(piece for piece, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    for phrase in phrases:
        counts.setdefault(phrase.lower(), 0)  # a token also when the texts lack it, else it would be unknown
        # The words of a phrase too: they also occur outside it.
        counts.update(piece for piece, _ in _splitter(())[1].pre_tokenize_str(phrase.lower()))
    fixed = [*SPECIAL, *(str(number) for number in range(MAX_NUMBER + 1))]
    known = frozenset(fixed)
    learnt = sorted((piece for piece in counts if piece not in known), key=lambda piece: (-counts[piece], piece))
    pieces = {piece for text in written for piece, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))}
    return fixed + learnt + sorted(pieces - known - counts.keys())


def build_tokenizer(
    texts: Iterable[str], *, context: int, phrases: Sequence[str] = (), written: Iterable[str] = ()
) -> PreTrainedTokenizerFast:
    """`word_tokenizer` for a chat; `context` is its model's longest sequence in tokens."""
    return in_chat(word_tokenizer(texts, phrases=phrases, written=written), context=context, unk_token=UNKNOWN)


def word_tokenizer(texts: Iterable[str], *, phrases: Sequence[str] = (), written: Iterable[str] = ()) -> Tokenizer:
    """A tokenizer that knows every piece of `texts` and `written`. `phrases` are texts that become single tokens
    wherever they stand.
    """
    words = learnt_vocabulary(texts, phrases, written)
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN))
    backend.normalizer, backend.pre_tokenizer = _splitter(phrases)
    attach = [decoders.Replace(f" {mark}", mark) for mark in (":", ";")]  # cleanup knows . , ? ! only
    backend.decoder = decoders.Sequence([decoders.WordPiece(prefix="##", cleanup=True), *attach])
    return backend


def in_chat(backend: Tokenizer, *, context: int, **tokens: str) -> PreTrainedTokenizerFast:
    """`backend` with the control tokens and the template of a chat; `tokens` are further special ones by their role."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=END,
        additional_special_tokens=list(ROLES),
        chat_template=CHAT_TEMPLATE,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
        **tokens,
    )


def build_exact_tokenizer(texts: Iterable[str], *, context: int) -> PreTrainedTokenizerFast:
    """A tokenizer whose `decode` undoes its `encode`; `context` is its model's longest sequence in tokens."""
    backend = Tokenizer(_pieces(texts))
    backend.pre_tokenizer = _exact_splitter()
    backend.decoder = decoders.ByteLevel()
    return in_chat(backend, context=context)


def _exact_splitter() -> pre_tokenizers.PreTokenizer:
    whole = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    return pre_tokenizers.Sequence([whole, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _pieces(texts: Iterable[str]) -> models.BPE:
    """Bytes, then the pieces by frequency, ties by spelling; a piece that is not known becomes its bytes."""
    counts: Counter[str] = Counter()
    splitter = _exact_splitter()
    for text in texts:
        counts.update(piece for piece, _ in splitter.pre_tokenize_str(text))
    often = sorted((piece for piece, count in counts.items() if count >= OFTEN), key=lambda p: (-counts[p], p))
    fixed = [*(name for name in SPECIAL if name != UNKNOWN), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    numbers = [str(number) for number in range(MAX_NUMBER + 1)]
    known = dict.fromkeys([*fixed, *numbers, *often[:LARGEST]])
    return models.BPE(vocab={name: index for index, name in enumerate(known)}, merges=[], ignore_merges=True)
