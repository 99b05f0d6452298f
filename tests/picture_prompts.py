"""Prompts and requests with pictures for a small vision-language model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from rla.llm.base import Request
from rla.llm.chat import ChatFormat
from rla.models.load import load_tokenizer
from rla.pictures.prompts import Picture, PictureMessage
from rla.pictures.vision import PictureChat, PromptTokens, VisionFormat, load_vision
from tests.seeing import small_model


@cache
def chat() -> ChatFormat:
    return ChatFormat(load_tokenizer(small_model("qwen3-vl")))


def vision() -> VisionFormat:
    found = load_vision(small_model("qwen3-vl"))
    assert found is not None
    return found


def prompt(*parts: str | bytes) -> PromptTokens:
    shown = tuple(Picture(one) if isinstance(one, bytes) else one for one in parts)
    return PictureChat(chat(), vision()).first([PictureMessage(role="user", parts=shown)])


def request(given: PromptTokens, **changes: Any) -> Request:
    made = Request(prompt_ids=given.ids, images=given.images, turns=given.turns, max_tokens=4, temperature=1.0, seed=2)
    return replace(made, **changes)
