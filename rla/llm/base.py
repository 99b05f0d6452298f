"""The contract between the scheduler and an inference engine: token ids in, token ids and log-probabilities out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from rla.llm.placed_images import PlacedImage
from rla.llm.trie import TokenTrie

BREATHS = 3  # turns of the event loop between passes: enough for a caller to act on a reply and ask again


class FinishReason(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A prompt and how to continue it.

    `session` names a growing sequence: an engine may keep its KV cache until `release(session)`; the next prompt of
    the session starts with the last prompt and completion. `samples` completions share the prompt (sample j draws
    from seed + j). `allowed` restricts every sampled token to a path of the trie; log-probabilities are renormalised
    over the tokens that the trie offers, and the offered ids are returned.

    `json_schema` asks for a reply that fits a JSON Schema from its first token on, so thoughts have to be in the prompt
    (`rla.agents.proposer`). It is for texts that are read and never trained on: which ids it left open is not returned.
    vLLM and servers hold a reply to it, other engines do not: read it strictly.

    `images`: what stands behind the picture tokens of the prompt, whose ids are complete: one for each token that the
    model will see. `turns`: the same prompt as turns of texts and pictures, for engines that take no token ids beside
    pictures.

    `top_p` below 1 samples from the nucleus alone: of the tokens that the trie offers, at the temperature, the smallest
    set of the likeliest ones whose probability reaches top_p. It is for evaluation: a trainer renormalises over
    `allowed`, and which ids were in the nucleus is not returned.
    """

    prompt_ids: Sequence[int]
    max_tokens: int
    temperature: float
    seed: int
    samples: int = 1
    session: str | None = None
    allowed: TokenTrie | None = None
    json_schema: Mapping[str, Any] | None = None
    top_p: float = 1.0
    images: Sequence[PlacedImage] = ()
    turns: Sequence[Any] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What was sampled, the stop token included. `logprobs` are those of the distribution that was sampled from
    (after temperature, restriction and top_p). `allowed`: per token the ids offered before top_p, empty lists where
    unrestricted."""

    token_ids: list[int]
    logprobs: list[float]
    allowed: list[list[int]]
    finish_reason: FinishReason


class Generator(Protocol):
    """An inference engine. `context` is the longest sequence in tokens that it can hold."""

    context: int

    async def generate(self, request: Request) -> list[Completion]: ...

    def release(self, session: str) -> None: ...

    def close(self) -> None: ...
