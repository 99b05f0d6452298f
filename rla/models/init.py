"""The models that a run starts from: links to the files of a model that exists, or a small new language model (Qwen3
architecture) with its own tokenizer. Both are Hugging Face folders with a record of their origin.

`word_tokenizer` learns words from an environment's texts. Text is lower-cased and split into fixed phrases that the
environment names, "in/on", words, numbers and single punctuation marks; a command such as "put mug 1 in/on desk 2"
decodes to itself. Numbers 0 to 99 always have their own token.

An exact tokenizer works on bytes, so decoding returns every text unchanged. Text is split into words with the
space before them, numbers, line ends with the following indent, and other characters. Frequent pieces are one token,
others fall back to bytes. Numbers of one or two digits are one piece, longer ones are spelled digit by digit, so a
value has only one spelling.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from rla.config.sections import ModelConfig
from rla.errors import UserError
from rla.models.checkpoint import ORIGIN, base_of, verify_model
from rla.models.load import hub_snapshot, write_merged
from rla.store.atomic import building, refuse_unlike, settle, take_place, write_json
from rla.store.manifest import KEY, PARAMETERS, read_json, read_records, record_files, sealed, unlike_text

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
MODEL_FILES = (  # of a model folder: weights, tokenizer, processor
    *(ORIGIN, "config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json"),
    *("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "chat_template.jinja"),
    *("preprocessor_config.json", "video_preprocessor_config.json", "processor_config.json"),
)


class OwnModel(Protocol):
    """An architecture that a package registers in `rla.models`; `config.own` is an instance."""

    def fill_model(self, folder: Path, *, tokenizer: PreTrainedTokenizerFast, config: ModelConfig, seed: int) -> None:
        """Write an untrained model, its tokenizer and its other files to an empty folder. The same `tokenizer`, with
        the tokens that this adds, is given for the second model. Raises UserError.
        """


def keep_or_make(folder: Path, made_from: dict[str, Any], make: Callable[[Path], None], *, overwrite: bool) -> None:
    """Ensure that the folder is a complete, unchanged model of this origin; `make` fills an empty folder if it is not.

    With `overwrite`, a model of another origin or with a changed file is replaced once the new one is complete; a
    folder without a record belongs to somebody else. Raises UserError.
    """
    settle(folder)
    if folder.exists():
        if not (folder / ORIGIN).is_file():
            raise UserError(f"{folder}: not made by rla init-model; move it away, or name it in model.policy")
        try:
            found = read_json(folder / ORIGIN)
            if any(found.get(key) != value for key, value in made_from.items() if key != PARAMETERS):
                unlike = unlike_text(found, made_from)
                raise UserError(f"{folder}: {unlike}; rerun with --overwrite or choose another folder")
            verify_model(folder)
            return
        except UserError:
            if not overwrite:
                raise
        refuse_unlike(folder, _recorded_file(folder))
    with building(folder) as partial:
        make(partial)
        write_json(partial / ORIGIN, sealed({**made_from, KEY: record_files(partial)}))
        take_place(partial, folder, _recorded_file(folder))


def _recorded_file(folder: Path) -> Callable[[Path], bool]:
    """Whether a path below `folder` is one that it records or, if its record is damaged, has the name of a model's file
    or is a link.
    """
    recorded = None
    with suppress(UserError):
        recorded = read_records(folder / ORIGIN)

    def ours(path: Path) -> bool:
        if recorded is not None:
            return path.as_posix() in (ORIGIN, *recorded)
        known = any(fnmatch(path.name, name) for name in MODEL_FILES)
        return len(path.parts) == 1 and (known or (folder / path).is_symlink())

    return ours


def adopt(source: str, folder: Path, *, key: str) -> None:
    """Fill an empty folder with links to the files of a local model folder, or of a hub model, which is fetched first.
    Adapter and base of a LoRA checkpoint are merged into new files.

    Raises UserError that names `key`, the parameter with the value `source`.
    """
    found = Path(source).expanduser()
    if not found.is_dir():
        if source.startswith((".", "/", "~", "models/")) or source.count("/") > 1:
            raise UserError(
                f"{key}: {source} is not a folder; give a Hugging Face model folder or a hub id, or make the folder "
                "first (docs/guide/install.md)"
            )
        found = hub_snapshot(source, key=key)
    if not (found / "config.json").is_file():
        raise UserError(f"{key}: {source} has no config.json; give a Hugging Face model folder or a hub id")
    if base_of(found) is not None:
        verify_model(found)
        write_merged(found, folder, dtype="float32")
        return
    for file in sorted(entry for entry in found.iterdir() if entry.is_file() and not entry.name.startswith(".")):
        (folder / file.name).symlink_to(file.resolve())


def init_model(folder: Path, *, tokenizer: PreTrainedTokenizerFast, config: ModelConfig, seed: int) -> None:
    """Write an untrained fp32 model and its tokenizer; the same seed gives the same weights. Raises UserError if the
    sizes do not fit together.
    """
    own: OwnModel | None = config.own
    if own is not None:
        own.fill_model(folder, tokenizer=tokenizer, config=config, seed=seed)
        return
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
    texts: Iterable[str],
    *,
    context: int,
    phrases: Sequence[str] = (),
    written: Iterable[str] = (),
    exact: bool = False,
) -> PreTrainedTokenizerFast:
    """The tokenizer of a new model, whose longest sequence has `context` tokens: `word_tokenizer` or, if it is to be
    `exact`, one whose `decode` undoes its `encode` for every text, and which ignores `phrases` and `written`.
    """
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=_exact_tokenizer(texts) if exact else word_tokenizer(texts, phrases=phrases, written=written),
        pad_token=PAD,
        bos_token=BOS,
        eos_token=END,
        additional_special_tokens=list(ROLES),
        chat_template=CHAT_TEMPLATE,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
        **({} if exact else {"unk_token": UNKNOWN}),
    )


def word_tokenizer(texts: Iterable[str], *, phrases: Sequence[str] = (), written: Iterable[str] = ()) -> Tokenizer:
    """A tokenizer that covers `texts` and `written`. Each of `phrases` becomes a single token.

    Its vocabulary: special tokens, numbers, the texts' other pieces by frequency, ties by spelling, and the pieces that
    only `written` contains, which must not change how the texts are encoded.
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
    words = fixed + learnt + sorted(pieces - known - counts.keys())
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN))
    backend.normalizer, backend.pre_tokenizer = normalizer, splitter
    attach = [decoders.Replace(f" {mark}", mark) for mark in (":", ";")]  # cleanup knows . , ? ! only
    backend.decoder = decoders.Sequence([decoders.WordPiece(prefix="##", cleanup=True), *attach])
    return backend


def _splitter(phrases: Sequence[str]) -> tuple[normalizers.Normalizer, pre_tokenizers.PreTokenizer]:
    """Splits phrases first, longest first, so that an environment's set phrases cost one token each."""
    ordered = sorted({phrase.lower() for phrase in phrases}, key=lambda phrase: (-len(phrase), phrase))
    fixed = "".join(rf"{re.escape(phrase)}(?![\p{{L}}\p{{N}}])|" for phrase in ordered)
    return normalizers.Lowercase(), pre_tokenizers.Split(Regex(fixed + WORDS), behavior="removed", invert=True)


def _exact_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Its vocabulary: bytes, numbers, then the pieces by frequency, ties by spelling. Other pieces become bytes."""
    whole = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    splitter = pre_tokenizers.Sequence([whole, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(piece for piece, _ in splitter.pre_tokenize_str(text))
    often = sorted((piece for piece, count in counts.items() if count >= OFTEN), key=lambda p: (-counts[p], p))
    fixed = [*(name for name in SPECIAL if name != UNKNOWN), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    numbers = [str(number) for number in range(MAX_NUMBER + 1)]
    known = dict.fromkeys([*fixed, *numbers, *often[:LARGEST]])
    vocabulary = {name: index for index, name in enumerate(known)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    backend.pre_tokenizer, backend.decoder = splitter, decoders.ByteLevel()
    return backend
