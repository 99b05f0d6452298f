"""Low-rank adapters through `peft`: the base is frozen, what trains and is carried on is the adapter (Hu et al. 2021).

The base is the run's first weights in the precision of the export, in every iteration the same; a new adapter changes
nothing. The checkpoint holds the adapter as `peft` writes it (`adapter/`) and the merged model (`model/`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.errors import UserError
from rla.models.checkpoint import ADAPTER, REFERENCE, Checkpoint
from rla.models.load import load_model
from rla.models.sight import sees
from rla.training.state import WEIGHTS, load_state_weights, matching, trainable
from rla.training.tensors import TensorFiles

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rla.config.training import LoraConfig, TrainConfig

VISION = r".*\bvisual\b.*"  # names of the layers of a vision tower, as a regular expression


def frozen_base(previous: Checkpoint, *, config: TrainConfig, mixed: bool) -> PreTrainedModel:
    """The run's first weights, rounded to `config.dtype`; in fp32 where the forward pass is not mixed."""
    model = load_model(previous.model, dtype=config.dtype)
    if previous.reference is not None:
        load_state_weights(model, previous.reference, REFERENCE)
    return model if mixed else model.float()


def adapted(model: PreTrainedModel, config: LoraConfig, *, vision: str = "trained") -> Any:
    """`model` with a new adapter on the linear layers of its blocks, as a peft model. Raises UserError.

    With `vision` frozen the vision tower of a model that has one gets none.
    """
    import peft

    settings = peft.LoraConfig(
        exclude_modules=VISION if vision == "frozen" and sees(model) else None,
        r=config.rank,
        lora_alpha=config.alpha,
        target_modules="all-linear" if not config.targets else list(config.targets),
        task_type="CAUSAL_LM",
    )
    try:
        whole = peft.get_peft_model(model, settings)
    except ValueError as error:
        raise UserError(f"lora.targets: {error}") from error
    # Log-probabilities come from its weight, in chunks: an adapter there would have no part in them.
    if hasattr(whole.get_base_model().get_output_embeddings(), "base_layer"):
        raise UserError("lora.targets: the output layer cannot have an adapter; leave it out")
    return whole


def merged(previous: Checkpoint, state: Path, *, config: TrainConfig, mixed: bool) -> tuple[PreTrainedModel, Path]:
    """The base with the adapter of a train state added in, and the folder (beside the state) of that adapter."""
    import torch

    whole = adapted(frozen_base(previous, config=config, mixed=mixed).float(), config.lora, vision=config.vision)
    model = whole.get_base_model()
    with torch.no_grad():
        for parameter, value in matching(trainable(model), TensorFiles(state, WEIGHTS, required=True)):
            parameter.copy_(value.read())
    folder = state.with_name(ADAPTER)
    whole.save_pretrained(folder)
    return whole.merge_and_unload(), folder
