"""Weights that an engine of this process reads: compared with what was recorded of them, and loaded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from rla.config.sections import GeneratorConfig

if TYPE_CHECKING:
    from rla.llm.transformers_engine import TransformersGenerator


def verification(config: GeneratorConfig) -> Callable[..., None]:
    """What compares the files of a model that an engine reads. Raises UserError where one changed."""
    from rla.models.verifying import verify_base, verify_model

    return verify_model if config.lora == "merged" else verify_base


def make_transformers(
    config: GeneratorConfig,
    model: Path | str,
    stop_ids: Collection[int],
    *,
    between_passes: Callable[[], Awaitable[None]] | None = None,
) -> TransformersGenerator:
    """The engine in this process, on a GPU where there is one. Raises UserError as `make_generator` does."""
    import torch

    from rla.llm.transformers_engine import TransformersGenerator
    from rla.models.load import load_model

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if config.threads:
        torch.set_num_threads(config.threads)
    return TransformersGenerator(
        load_model(model, dtype=config.dtype, device=device),
        stop_ids=stop_ids,
        max_sequences=config.max_sequences,
        context=config.context,
        between_passes=between_passes,
    )
