"""From the `generator` section to an engine and its tokenizer; only the backend asked for is imported.

Engines of other packages are registered as `rla.config.load` says.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rla.config.sections import GeneratorConfig
from rla.llm.base import Generator

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rla.llm.chat import ChatFormat
    from rla.llm.transformers_engine import TransformersGenerator

VERIFIED = "RLA_VERIFIED"  # the model whose files the process that started this one has compared already


class OwnEngine(Protocol):
    """What a package registers in `rla.engines`; `config.own` is an instance."""

    engine: str  # whose replies these are: a backend of ours, or the registered name

    def generator(
        self, config: GeneratorConfig, *, model: Path | str, chat: ChatFormat, seed: int, training: bool
    ) -> Generator:
        """As `make_generator`. Its weights have not been compared with what was recorded of them."""
        ...

    def free_memory(self, config: GeneratorConfig) -> None:
        """Called before a model is trained: engines that stay give their GPUs back. Raises UserError."""
        ...


def make_generator(
    config: GeneratorConfig, *, model: Path | str, seed: int, training: bool = True
) -> tuple[Generator, PreTrainedTokenizerBase]:
    """The engine of `config.backend` over `model` (a folder or hub id), and that model's tokenizer.

    `training`: its replies may be trained on; a server that leaves out what that needs is refused. Raises UserError
    when the model or the backend's package is missing. Not to be called in an event loop.
    """
    from rla.llm.chat import ChatFormat
    from rla.models.load import load_tokenizer
    from rla.models.verifying import named_content, verify_model

    verify_model(model, weights=False)  # an engine elsewhere compares the weights that it reads
    tokenizer = load_tokenizer(model)
    if config.backend == "scripted":
        from rla.llm.scripted import ScriptedGenerator

        return ScriptedGenerator(context=config.context, stop_id=ChatFormat(tokenizer).end_id), tokenizer
    if config.backend == "server":
        from rla.llm.server_engine import connect

        return connect(config, model=model, chat=ChatFormat(tokenizer), training=training), tokenizer
    if config.own is not None:
        own: OwnEngine = config.own
        made = own.generator(config, model=model, chat=ChatFormat(tokenizer), seed=seed, training=training)
        return made, tokenizer
    stop_ids = ChatFormat(tokenizer).stop_ids
    if os.environ.get(VERIFIED) != named_content(model):
        verify_model(model)
    if config.backend == "vllm":
        from rla.llm.vllm_engine import VllmGenerator

        return VllmGenerator(config, model=model, stop_ids=stop_ids, seed=seed), tokenizer
    return make_transformers(config, model, stop_ids), tokenizer


def free_memory(config: GeneratorConfig) -> None:
    """Have engines that stay give their memory back before training takes it. Raises UserError if they are in use."""
    if config.own is not None:
        own: OwnEngine = config.own
        own.free_memory(config)


def verified_once(config: GeneratorConfig, checkpoint: Path | None) -> dict[str, str]:
    """Compare the files of the model for all workers, which read the same: the environment that tells them so.

    `checkpoint`: None where they need none. Raises UserError as `make_generator` does.
    """
    if checkpoint is None or config.backend not in ("vllm", "transformers"):
        return {}
    from rla.models.checkpoint import model_folder
    from rla.models.verifying import named_content, verify_model

    model = model_folder(checkpoint)
    verify_model(model)
    return {VERIFIED: named_content(model)}


def make_transformers(config: GeneratorConfig, model: Path | str, stop_ids: Collection[int]) -> TransformersGenerator:
    """The engine in this process, on a GPU where there is one. Raises UserError as `make_generator` does."""
    import torch

    from rla.llm.transformers_engine import TransformersGenerator
    from rla.models.load import load_model
    from rla.models.vision import load_vision

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if config.threads:
        torch.set_num_threads(config.threads)
    return TransformersGenerator(
        load_model(model, dtype=config.dtype, device=device),
        stop_ids=stop_ids,
        max_sequences=config.max_sequences,
        context=config.context,
        vision=load_vision(model),
    )
