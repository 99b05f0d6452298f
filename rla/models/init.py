"""A small new language model (Qwen3 architecture) with its own tokenizer, as a Hugging Face folder.

`build_tokenizer` learns words from an environment's texts. Text is lower-cased and split into fixed phrases that the
environment names, "in/on", words, numbers and single punctuation marks; a command such as "put mug 1 in/on desk 2"
decodes to itself. Numbers 0 to 99 always have their own token.

`build_exact_tokenizer` works on bytes, so decoding returns every text unchanged. Text is split into words with the
space before them, numbers, line ends with the following indent, and other characters. Frequent pieces are one token,
others fall back to bytes. Numbers of one or two digits are one piece, longer ones are spelled digit by digit, so a
value has only one spelling.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from rla.config.sections import ModelConfig
from rla.errors import UserError
from rla.store.atomic import whole_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

# At width 96 with tied embeddings: logits of a fresh model have a standard deviation of about one half.
INITIALIZER_RANGE = 0.05
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


def init_model(
    folder: Path,
    *,
    texts: Iterable[str],
    config: ModelConfig,
    seed: int,
    phrases: Sequence[str] = (),
    exact: bool = False,
) -> None:
    """Write an untrained fp32 text model and a tokenizer that covers `texts`; the same seed gives the same weights.

    The folder appears complete or not at all. Raises UserError if it exists, or if the sizes do not fit together.
    """
    with whole_folder(folder) as partial:
        tokenizer = new_tokenizer(texts, phrases=phrases, exact=exact, context=config.context)
        fill_model(partial, tokenizer=tokenizer, config=config, seed=seed)


def fill_model(folder: Path, *, tokenizer: PreTrainedTokenizerFast, config: ModelConfig, seed: int) -> None:
    """Write `new_model` and its tokenizer to an empty folder."""
    new_model(tokenizer, config=config, seed=seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def new_model(tokenizer: PreTrainedTokenizerFast, *, config: ModelConfig, seed: int) -> PreTrainedModel:
    """An untrained fp32 text model for the tokenizer's ids. Raises UserError if the sizes do not fit together."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # as in `load_model`
    sizes = text_sizes(tokenizer, config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = Qwen3ForCausalLM(Qwen3Config(**sizes))
    return model.float()


def text_sizes(tokenizer: PreTrainedTokenizerFast, config: ModelConfig) -> dict[str, Any]:
    """The arguments of transformers' configuration of the text model. Raises UserError if the sizes do not fit."""
    if config.hidden_size % (2 * config.heads):
        raise UserError("model.hidden_size must be a multiple of 2 * model.heads: rotary heads have an even width")
    if config.heads > 1 and config.heads % 2:
        raise UserError("model.heads must be even, or 1: two heads share keys and values")
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": max(1, config.heads // 2),
        "head_dim": config.hidden_size // config.heads,
        "max_position_embeddings": config.context,
        "initializer_range": INITIALIZER_RANGE,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "tie_word_embeddings": True,
        "pad_token_id": int(tokenizer.pad_token_id),
        "bos_token_id": int(tokenizer.bos_token_id),
        "eos_token_id": int(tokenizer.eos_token_id),
        "dtype": "float32",
    }


def new_tokenizer(
    texts: Iterable[str], *, context: int, phrases: Sequence[str] = (), written: Iterable[str] = (), exact: bool
) -> PreTrainedTokenizerFast:
    """The tokenizer of a new model. `written` are texts it must also cover without changing how it splits `texts`. An
    exact one covers every text and ignores `phrases` and `written`.
    """
    if exact:
        return build_exact_tokenizer(texts, context=context)
    return build_tokenizer(texts, context=context, phrases=phrases, written=written)


def _splitter(phrases: Sequence[str]) -> tuple[normalizers.Normalizer, pre_tokenizers.PreTokenizer]:
    """Splits phrases first, longest first, so that an environment's set phrases cost one token each."""
    ordered = sorted({phrase.lower() for phrase in phrases}, key=lambda phrase: (-len(phrase), phrase))
    fixed = "".join(rf"{re.escape(phrase)}(?![\p{{L}}\p{{N}}])|" for phrase in ordered)
    return normalizers.Lowercase(), pre_tokenizers.Split(Regex(fixed + WORDS), behavior="removed", invert=True)


def learnt_vocabulary(texts: Iterable[str], phrases: Sequence[str] = (), written: Iterable[str] = ()) -> list[str]:
    """Special tokens, numbers, then the texts' other pieces by frequency, ties by spelling. Pieces that only `written`
    contains come last.
    """
    normalizer, splitter = _splitter(phrases)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(piece for piece, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    for phrase in phrases:
        counts.setdefault(phrase.lower(), 0)  # a token even if the texts lack it
        # The words of a phrase also occur outside it.
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
    return _in_chat(word_tokenizer(texts, phrases=phrases, written=written), context=context, unk_token=UNKNOWN)


def word_tokenizer(texts: Iterable[str], *, phrases: Sequence[str] = (), written: Iterable[str] = ()) -> Tokenizer:
    """A tokenizer that covers `texts` and `written`. Each of `phrases` becomes a single token."""
    words = learnt_vocabulary(texts, phrases, written)
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN))
    backend.normalizer, backend.pre_tokenizer = _splitter(phrases)
    attach = [decoders.Replace(f" {mark}", mark) for mark in (":", ";")]  # cleanup knows . , ? ! only
    backend.decoder = decoders.Sequence([decoders.WordPiece(prefix="##", cleanup=True), *attach])
    return backend


def _in_chat(backend: Tokenizer, *, context: int, **tokens: str) -> PreTrainedTokenizerFast:
    """`backend` with control tokens and a chat template; `tokens` are further special tokens by role."""
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
    return _in_chat(backend, context=context)


def _exact_splitter() -> pre_tokenizers.PreTokenizer:
    whole = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    return pre_tokenizers.Sequence([whole, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _pieces(texts: Iterable[str]) -> models.BPE:
    """Bytes, then the pieces by frequency, ties by spelling; an unknown piece becomes its bytes."""
    counts: Counter[str] = Counter()
    splitter = _exact_splitter()
    for text in texts:
        counts.update(piece for piece, _ in splitter.pre_tokenize_str(text))
    often = sorted((piece for piece, count in counts.items() if count >= OFTEN), key=lambda p: (-counts[p], p))
    fixed = [*(name for name in SPECIAL if name != UNKNOWN), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    numbers = [str(number) for number in range(MAX_NUMBER + 1)]
    known = dict.fromkeys([*fixed, *numbers, *often[:LARGEST]])
    return models.BPE(vocab={name: index for index, name in enumerate(known)}, merges=[], ignore_merges=True)
