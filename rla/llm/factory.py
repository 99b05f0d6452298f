"""Make the engine and tokenizer of the `generator` section, importing only the configured backend.

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

VERIFIED = "RLA_VERIFIED"  # the model whose files the parent process has already verified


class OwnEngine(Protocol):
    """An engine that a package registers in `rla.engines`; `config.own` is an instance. An attribute `engine` names the
    backend that computes, if it is not the registered name.
    """

    def generator(
        self, config: GeneratorConfig, *, model: Path | str, chat: ChatFormat, seed: int, training: bool
    ) -> Generator:
        """As `make_generator`. The caller has not verified the weights."""
        ...

    def free_memory(self, config: GeneratorConfig) -> None:
        """Called before training: engines that outlive a stage free their GPUs. Raises UserError."""
        ...


def make_generator(
    config: GeneratorConfig, *, model: Path | str, seed: int, training: bool = True
) -> tuple[Generator, PreTrainedTokenizerBase]:
    """The engine of `config.backend` over `model` (a folder or hub id), and that model's tokenizer.

    `training` means that replies may train; a server that leaves out data that training needs is refused. Raises
    UserError if the model or the backend's package is missing. Must not be called in an event loop.
    """
    from rla.llm.chat import ChatFormat
    from rla.models.load import load_tokenizer
    from rla.models.verifying import named_content, verify_model

    verify_model(model, weights=False)  # a remote engine verifies the weights that it reads
    tokenizer = load_tokenizer(model)
    if config.backend == "scripted":
        from rla.llm.scripted import ScriptedGenerator

        return ScriptedGenerator(context=config.context, stop_id=ChatFormat(tokenizer).end_id), tokenizer
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
    """Make engines that outlive a stage free their memory before training. Raises UserError if they are in use."""
    if config.own is not None:
        own: OwnEngine = config.own
        own.free_memory(config)


def verified_once(config: GeneratorConfig, checkpoint: Path | None) -> dict[str, str]:
    """Verify the files of the model once for all workers. Returns the environment variables that tell them so.

    `checkpoint` is None if they need none. Raises UserError as `make_generator` does.
    """
    if checkpoint is None or config.backend not in ("vllm", "transformers"):
        return {}
    from rla.models.checkpoint import model_folder
    from rla.models.verifying import named_content, verify_model

    model = model_folder(checkpoint)
    verify_model(model)
    return {VERIFIED: named_content(model)}


def make_transformers(config: GeneratorConfig, model: Path | str, stop_ids: Collection[int]) -> TransformersGenerator:
    """The engine in this process, on a GPU if there is one. Raises UserError as `make_generator` does."""
    import torch

    from rla.llm.transformers_engine import TransformersGenerator
    from rla.models.load import load_model
    from rla.pictures.vision import load_vision

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
