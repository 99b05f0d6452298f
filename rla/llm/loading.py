"""Weights that an engine of this process reads: compared with what was recorded of them, and loaded."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from rla.config.sections import GeneratorConfig

if TYPE_CHECKING:
    from rla.llm.transformers_engine import TransformersGenerator


def verification(config: GeneratorConfig) -> Callable[..., None]:
    """What compares the files of a model that an engine reads. Raises UserError where one changed."""
    from rla.models.verifying import verify_base, verify_model

    return verify_model if config.lora == "merged" else verify_base


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


def absolute_model(model: Path | str) -> str:
    """The model's folder as another process finds it, or its hub id."""
    return str(Path(model).resolve()) if Path(model).is_dir() else str(model)
