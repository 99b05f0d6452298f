"""Tokenizers with the control tokens and the chat template of a model family, small enough to be made in a test."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import trl
from rla_programs.collecting.conversations import ChatMessage, Conversation, calls_text
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LLAMA = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
# How both families cut text before they merge bytes.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = ["The sum of the numbers\n\nis 12. ```python\nprint(3 + 4)\n``` user assistant system tool"] * 3
SCHEMA = (
    '[{"type": "function", "function": {"name": "code_interpreter", "description": "Runs it.", "parameters": '
    '{"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}}}]'
)


@cache
def tokenizer_of(family: str) -> PreTrainedTokenizerFast:
    """`family`: the name of one of TRL's templates."""
    qwen = family.startswith("qwen")
    backend = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.add_special_tokens([AddedToken(text, special=True) for text in (QWEN if qwen else LLAMA)])
    if qwen:
        backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=None if qwen else LLAMA[0],
        eos_token="<|im_end|>" if qwen else "<|eot_id|>",
        pad_token="<|endoftext|>" if qwen else "<|end_of_text|>",
        chat_template=(TEMPLATES / f"{family}.jinja").read_text(),
    )


def called(text: str, *programs: str) -> ChatMessage:
    calls = [("code_interpreter", {"code": program}) for program in programs]
    return ChatMessage(role="assistant", content=text, tool_calls=calls_text(calls))


def said(role: str, content: str) -> ChatMessage:
    return ChatMessage(role=role, content=content)


def conversation(*messages: ChatMessage, tools: str | None = SCHEMA) -> Conversation:
    return Conversation(
        task_id="", source="", messages=messages, tools=tools, outcome=None, quality=None, teacher="test"
    )
