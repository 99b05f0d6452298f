"""Make the engine and tokenizer of the `generator` section, importing only the configured backend; and the engine that
needs no model, for tests.

Engines of other packages are registered as `rla.config.load` says.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rla.config.sections import GeneratorConfig
from rla.llm.base import Completion, FinishReason, Generator, Request, check_request, usable_completions
from rla.llm.chat import ChatFormat
from rla.models.checkpoint import verify_model
from rla.models.load import load_model, load_tokenizer
from rla.pictures.vision import load_vision

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rla.llm.transformers_engine import TransformersGenerator


class OwnEngine(Protocol):
    """An engine that a package registers in `rla.engines`; `config.own` is an instance. An attribute `engine` names the
    backend that computes, if it is not the registered name.
    """

    def generator(
        self, config: GeneratorConfig, *, model: Path | str, chat: ChatFormat, seed: int, training: bool
    ) -> Generator:
        """As `make_generator`. The caller has not verified the weights."""

    def free_memory(self, config: GeneratorConfig) -> None:
        """Called before training: engines that outlive a stage free their GPUs. Raises UserError."""


def make_generator(
    config: GeneratorConfig, *, model: Path | str, seed: int, training: bool = True
) -> tuple[Generator, PreTrainedTokenizerBase]:
    """The engine of `config.backend` over `model` (a folder or hub id), and that model's tokenizer.

    `training` means that replies may train; a server that leaves out data that training needs is refused. Raises
    UserError if the model or the backend's package is missing. Must not be called in an event loop.
    """
    verify_model(model, weights=False)  # a remote engine verifies the weights that it reads
    tokenizer = load_tokenizer(model)
    if config.backend == "scripted":
        return ScriptedGenerator(context=config.context, stop_id=ChatFormat(tokenizer).end_id), tokenizer
    if config.own is not None:
        own: OwnEngine = config.own
        made = own.generator(config, model=model, chat=ChatFormat(tokenizer), seed=seed, training=training)
        return made, tokenizer
    stop_ids = ChatFormat(tokenizer).stop_ids
    verify_model(model)
    if config.backend == "vllm":
        from rla.llm.vllm_engine import VllmGenerator

        return VllmGenerator(config, model=model, stop_ids=stop_ids, seed=seed), tokenizer
    return make_transformers(config, model, stop_ids), tokenizer


def free_memory(config: GeneratorConfig) -> None:
    """Make engines that outlive a stage free their memory before training. Raises UserError if they are in use."""
    if config.own is not None:
        own: OwnEngine = config.own
        own.free_memory(config)


def make_transformers(config: GeneratorConfig, model: Path | str, stop_ids: Collection[int]) -> TransformersGenerator:
    """The engine in this process, on a GPU if there is one. Raises UserError as `make_generator` does."""
    import torch

    from rla.llm.transformers_engine import TransformersGenerator

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return TransformersGenerator(
        load_model(model, dtype=config.dtype, device=device),
        stop_ids=stop_ids,
        max_sequences=config.max_sequences,
        context=config.context,
        vision=load_vision(model),
    )


Reply = Callable[[Request, int], list[int]]


def hashed_path(request: Request, seed: int, *, stop_id: int) -> list[int]:
    """A path of the request's trie picked by hash(seed, prompt), or just `stop_id` without a trie."""
    if request.allowed is None:
        return [stop_id]
    state = hashlib.blake2b(f"{seed}:{','.join(map(str, request.prompt_ids))}".encode(), digest_size=8)
    tokens: list[int] = []
    while choices := request.allowed.allowed(tokens):
        tokens.append(choices[int.from_bytes(state.digest(), "little") % len(choices)])
        state.update(tokens[-1].to_bytes(8, "little"))
    return tokens


class ScriptedGenerator:
    """A Generator without a model: answers with `reply(request, seed of the sample)`, by default `hashed_path`, cut at
    `max_tokens`. Log-probabilities belong to a uniform choice: -log(number of ids offered), or 0 if unrestricted.
    """

    def __init__(self, reply: Reply | None = None, *, context: int = 1 << 30, stop_id: int = 0) -> None:
        self.context = context
        self.requests = 0
        self._reply: Reply = reply or (lambda request, seed: hashed_path(request, seed, stop_id=stop_id))

    async def generate(self, request: Request) -> list[Completion]:
        """Raises ValueError like an engine, KeyError for a reply that the trie does not allow."""
        check_request(request, context=self.context)
        self.requests += 1
        return usable_completions([self._complete(request, request.seed + index) for index in range(request.samples)])

    def release(self, session: str) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""

    def _complete(self, request: Request, seed: int) -> Completion:
        reply = self._reply(request, seed)
        tokens = reply[: request.max_tokens]
        offered: list[list[int]] = [[] for _ in tokens]
        if request.allowed is not None:
            offered = [request.allowed.allowed(tokens[:index]) for index in range(len(tokens))]
            request.allowed.allowed(tokens)
        return Completion(
            token_ids=tokens,
            logprobs=[-math.log(len(ids)) if ids else 0.0 for ids in offered],
            allowed=offered,
            finish_reason=FinishReason.STOP if len(tokens) == len(reply) else FinishReason.LENGTH,
        )
