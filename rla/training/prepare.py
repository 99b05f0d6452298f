"""The start of a training stage: model, optimizer, train state, and the log-probabilities that do not change.

Low-rank adapters come through `peft`: the base is frozen, and the adapter trains and is carried on (Hu et al. 2021).
The base is the run's first weights rounded to `dtype`, the same in every iteration; a new adapter changes nothing. The
checkpoint holds the adapter and names the folder of the base (`rla.models.checkpoint`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rla.config.training import TrainConfig
from rla.errors import UserError
from rla.models.checkpoint import ADAPTER, ADAPTER_SETTINGS, ADAPTER_WEIGHTS, REFERENCE, Checkpoint, base_of
from rla.models.load import hollow_model, load_model
from rla.pictures.encoder import VisionCollator, has_vision_encoder, vision_encoder
from rla.pictures.vision import load_vision
from rla.training.batches import StoredSequences, collate, micro_batches
from rla.training.cost import Work
from rla.training.logprobs import TokenScorer
from rla.training.shared import Compute, Sharing, make_backend
from rla.training.state import WEIGHTS, TrainState, full_shape, load_state_weights
from rla.training.tensors import TensorFiles

if TYPE_CHECKING:
    from transformers import PreTrainedModel

VISION_LAYERS = r".*\bvisual\b.*"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedStage:
    """The state that all updates of a stage share.

    Log-probabilities have an entry for each sequence: `reference` is None without KL, `old` is None if they are the
    sampler's. `loading_s`: seconds that reading model and state took. `adapter`: peft's settings of the adapter that
    trains.
    """

    config: TrainConfig
    compute: Compute
    scorer: TokenScorer
    state: TrainState
    sequences: StoredSequences
    reference: list[Tensor] | None
    old: list[Tensor] | None
    work: Work
    vision: VisionCollator | None = None
    loading_s: float = 0.0
    adapter: Any = None

    def passes(self, indices: Sequence[int]) -> list[list[int]]:
        """The forward passes for these sequences, longest first."""
        lengths, tokens = self.sequences.stats.lengths, self.compute.tokens_per_batch
        return micro_batches(lengths, indices, tokens_per_batch=tokens, packed=self.scorer.packs)


def prepare(
    previous: Checkpoint,
    sequences: StoredSequences,
    *,
    config: TrainConfig,
    temperature: float,
    seed: int,
    compute: Compute,
) -> PreparedStage:
    """Load model, optimizer and state, and score the reference. Raises UserError if model and rows do not match."""
    torch.manual_seed(seed)
    ranks, lora = compute.ranks, config.lora.rank > 0
    files = _complete_weights(previous) if ranks.sharing is Sharing.FSDP and not lora else None
    started = time.monotonic()
    model, adapter = _load(previous, config=config, compute=compute, hollow=files is not None)
    loading = time.monotonic() - started
    if sequences.stats.highest >= model.config.get_text_config().vocab_size:
        raise UserError(
            f"{previous.model}: knows no token {sequences.stats.highest}; train the model that made the trajectories"
        )
    if config.gradient_checkpointing:
        checkpoint_gradients(model)
    vision = load_vision(previous.model) if has_vision_encoder(model) else None
    if vision is None and sequences.stats.pictures:
        raise UserError(f"{previous.model}: reads texts alone; train the model that saw the pictures of these rows")
    collator = None if vision is None else VisionCollator(vision, sequences.images, always=ranks.sharded)
    scorer = TokenScorer(
        model,
        temperature=temperature,
        train_entropy=config.entropy_coef != 0,
        mixed=compute.mixed,
        fp32_head=config.fp32_head,
        banned=() if vision is None else vision.banned,
    )
    work = Work.of(model)  # before the weights are sharded
    state = TrainState(model=model, backend=make_backend(scorer, config, compute), ranks=ranks)
    stage = PreparedStage(
        config=config,
        compute=compute,
        scorer=scorer,
        state=state,
        sequences=sequences,
        reference=None,
        old=None,
        work=work,
        vision=collator,
        adapter=adapter,
    )
    if files is not None:
        started = time.monotonic()
        for name, parameter in model.named_parameters():
            state.backend.set_weight(parameter, files[name])
        loading += time.monotonic() - started
    reference = current = None
    # The model is its own reference before the state's weights are loaded, so two copies never exist. A new adapter
    # changes nothing, so with LoRA the base is the reference.
    from_initial = config.kl_coef != 0 and config.kl_reference == "initial"
    from_previous = config.kl_coef != 0 and not from_initial
    if from_initial:
        if previous.reference is not None and not lora:
            state.load_weights(previous.reference, REFERENCE)
        reference = score(stage)
    if previous.state is not None and (previous.adapter is not None or not lora):
        started = time.monotonic()
        state.load(previous.state)
        loading += time.monotonic() - started
    if from_previous or config.old == "trainer":
        current = score(stage)
    return replace(
        stage,
        reference=current if from_previous else reference,
        old=current if config.old == "trainer" else None,
        loading_s=loading,
    )


@torch.no_grad()
def score(stage: PreparedStage) -> list[Tensor]:
    """The log-probabilities of the loss tokens of every sequence, under the present weights."""
    sequences, ranks, device = stage.sequences, stage.compute.ranks, stage.compute.device
    scores: dict[int, Tensor] = {}
    for indices, counted in ranks.share(stage.passes(range(len(sequences)))):
        chosen = [sequences[index] for index in indices]
        batch = collate(chosen, device=device, packed=stage.scorer.packs, vision=stage.vision)
        logp, _ = stage.state.backend.module(batch)
        if counted:
            parts = logp.split([sequences.stats.loss_tokens[index] for index in indices])
            scores.update(zip(indices, parts, strict=True))
    if ranks.world > 1:
        every = ranks.gather({index: part.cpu() for index, part in scores.items()})
        scores = {index: part.to(device) for one in every for index, part in one.items()}
    return [scores[index] for index in range(len(sequences))]


def _complete_weights(previous: Checkpoint) -> TensorFiles | None:
    """The files of which each rank reads its part, if they name every weight as the model does; otherwise None."""
    folder = Path(previous.model)
    if not (folder / "config.json").is_file():
        return None
    files, model = TensorFiles(folder, "model"), hollow_model(folder)
    if model.state_dict().keys() > {name for name, _ in model.named_parameters(remove_duplicate=False)}:
        return None  # it stores buffers as well
    complete = all(files.shapes.get(name) == full_shape(parameter) for name, parameter in model.named_parameters())
    return files if complete else None


def _load(previous: Checkpoint, *, config: TrainConfig, compute: Compute, hollow: bool) -> tuple[PreTrainedModel, Any]:
    """The model with fp32 weights, or with a frozen base and an adapter, and peft's settings of that.

    `hollow`: without memory for the weights. A model that will be sharded stays on the CPU.
    """
    if (previous.adapter is None and config.lora.rank and previous.updates) or (
        previous.adapter is not None and not config.lora.rank
    ):
        kind = "an adapter" if previous.adapter is not None else "all weights"
        raise UserError(
            f"{Path(previous.model).parent}: the run has trained {kind}; set lora.rank as before, "
            "or start a run of its own from its model/ folder"
        )
    device = "cpu" if compute.ranks.sharded else str(compute.device)
    if config.lora.rank:
        model, settings = load_adapted(previous, config)
        return model.to(device), settings
    if hollow:
        return freeze_vision(hollow_model(Path(previous.model)), config), None
    return freeze_vision(load_model(previous.model, dtype="float32", device=device), config), None


def freeze_vision(model: PreTrainedModel, config: TrainConfig) -> PreTrainedModel:
    """Freeze the vision encoder, if there is one and the parameters say so."""
    if has_vision_encoder(model) and config.vision == "frozen":
        vision_encoder(model).requires_grad_(False)
    return model


def checkpoint_gradients(model: PreTrainedModel) -> None:
    """Recompute activations in the backward pass.

    That needs training mode, which must not bring dropout: the ratio is that of the model that sampled.
    """
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "attn_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    # The reentrant kind gives no gradient if the input of a block needs none, which is so everywhere under LoRA.
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def export_weights(
    stage: PreparedStage, previous: Checkpoint, state: Path
) -> tuple[PreTrainedModel, None] | tuple[None, Path]:
    """The whole model to export, or the folder of an adapter, made from the folder `state` if weights are sharded."""
    if stage.adapter is not None:
        return None, write_adapter(state, stage.adapter)
    if not stage.compute.ranks.sharded:
        return stage.scorer.model, None
    model = freeze_vision(load_model(previous.model, dtype=stage.config.dtype), stage.config)
    load_state_weights(model, state, WEIGHTS)
    return model, None


def load_adapted(previous: Checkpoint, config: TrainConfig) -> tuple[PreTrainedModel, Any]:
    """The run's first weights in `config.dtype`, frozen, with a new adapter, and peft's settings of the adapter."""
    base = base_of(previous.model)
    if base is not None and previous.adapter is None:
        raise UserError(
            f"{previous.model}: holds an adapter over other weights, and no adapter can lie over it; write both as one "
            f"with `rla merge {Path(previous.model).parent} FOLDER` and start from that"
        )
    return add_new_adapter(load_model(previous.model if base is None else base.folder, dtype=config.dtype), config)


def add_new_adapter(model: PreTrainedModel, config: TrainConfig) -> tuple[PreTrainedModel, Any]:
    """`model` with a new adapter on the linear layers of its blocks, not of a frozen vision encoder. UserError."""
    import peft

    settings = peft.LoraConfig(
        exclude_modules=VISION_LAYERS if config.vision == "frozen" and has_vision_encoder(model) else None,
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        target_modules="all-linear" if not config.lora.targets else list(config.lora.targets),
        task_type="CAUSAL_LM",
    )
    try:
        whole: Any = peft.get_peft_model(model, settings)
    except ValueError as error:
        raise UserError(f"lora.targets: {error}") from error
    adapted: PreTrainedModel = whole.get_base_model()
    # Log-probabilities come from its weight, in chunks: an adapter there would have no part in them.
    if hasattr(adapted.get_output_embeddings(), "base_layer"):
        raise UserError("lora.targets: the output layer cannot have an adapter; leave it out")
    return adapted, whole.peft_config["default"]


def write_adapter(state: Path, settings: Any) -> Path:
    """Write the adapter of a train state as peft does, in a folder beside the state."""
    from safetensors.torch import save_file

    folder, files = state.with_name(ADAPTER), TensorFiles(state, WEIGHTS, required=True)
    settings.inference_mode = True
    settings.save_pretrained(folder)
    file = folder / ADAPTER_SETTINGS
    content = json.loads(file.read_text()) | {"target_modules": sorted(settings.target_modules)}  # a set has no order
    file.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    named = {f"base_model.model.{name.replace('.default.', '.')}": files[name].read() for name in files}
    save_file(named, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    return folder
