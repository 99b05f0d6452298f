"""What a training stage starts from: model, optimizer, train state and the log-probabilities that do not change.

Low-rank adapters come through `peft`: the base is frozen, and the adapter trains and is carried on (Hu et al. 2021).
The base is the run's first weights rounded to `dtype`, in every iteration the same; a new adapter changes nothing. The
checkpoint holds the adapter and says where the base lies (`rla.models.adapters`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rla.config.training import LoraConfig, TrainConfig
from rla.errors import UserError
from rla.models.adapters import SETTINGS, base_of
from rla.models.adapters import WEIGHTS as ADAPTER_WEIGHTS
from rla.models.checkpoint import ADAPTER, REFERENCE, Checkpoint
from rla.models.load import hollow_model, load_model
from rla.models.sight import sees, vision_tower
from rla.models.vision import load_vision
from rla.training.batching import Eyes, collate, micro_batches
from rla.training.logprobs import TokenScorer
from rla.training.metrics import Stopwatch, Work
from rla.training.optimizing import make_optimizing
from rla.training.ranks import Compute, Sharing
from rla.training.sequence_file import StoredSequences
from rla.training.state import WEIGHTS, TrainState, full_shape, load_state_weights
from rla.training.tensors import TensorFiles

if TYPE_CHECKING:
    from transformers import PreTrainedModel

VISION = r".*\bvisual\b.*"  # names of the layers of a vision tower, as a regular expression


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedStage:
    """What the updates of a stage share, log-probabilities by sequence: `reference`, None without KL, and `old`, None
    where they are the sampler's. `loading_s`: seconds in which model and state were read. `adapter`: the settings of
    the one that trains, as peft has them.
    """

    config: TrainConfig
    compute: Compute
    scorer: TokenScorer
    state: TrainState
    sequences: StoredSequences
    reference: list[Tensor] | None
    old: list[Tensor] | None
    work: Work
    eyes: Eyes | None = None
    loading_s: float = 0.0
    adapter: Any = None

    def passes(self, indices: Sequence[int]) -> list[list[int]]:
        """The forward passes for these sequences."""
        return _passes(self.sequences, indices, self.compute, self.scorer)


def prepare(
    previous: Checkpoint,
    sequences: StoredSequences,
    *,
    config: TrainConfig,
    temperature: float,
    seed: int,
    compute: Compute,
) -> PreparedStage:
    """Model, optimizer and reference log-probabilities at the start of the stage."""
    torch.manual_seed(seed)
    loading = Stopwatch()
    files = own_weights(previous) if compute.ranks.sharing is Sharing.FSDP and not config.lora.rank else None
    with loading:
        model, adapter = _model(previous, config=config, compute=compute, hollow=files is not None)
    if sequences.facts.highest >= model.config.get_text_config().vocab_size:
        raise UserError(
            f"{previous.model}: knows no token {sequences.facts.highest}; train the model that made the trajectories"
        )
    if config.gradient_checkpointing:
        checkpoint_gradients(model)
    vision = load_vision(previous.model) if sees(model) else None
    if vision is None and sequences.facts.pictures:
        raise UserError(f"{previous.model}: reads texts alone; train the model that saw the pictures of these rows")
    eyes = None if vision is None else Eyes(vision, sequences.images, always=compute.ranks.sharded)
    train_entropy = config.entropy_coef != 0
    scorer = TokenScorer(
        model,
        temperature=temperature,
        train_entropy=train_entropy,
        mixed=compute.mixed,
        fp32_head=config.fp32_head,
        banned=() if vision is None else vision.banned,
    )
    work = Work.of(model)
    state = TrainState(model=model, optimizing=make_optimizing(scorer, config, compute), ranks=compute.ranks)
    if files is not None:
        with loading:
            state.fill(files)
    reference = None
    # The reference borrows the model before the state's own weights arrive: two copies never exist. A new adapter
    # changes nothing, so that with LoRA the model is its own reference here.
    from_initial = config.kl_coef != 0 and config.kl_reference == "initial"
    if from_initial:
        if previous.reference is not None and not config.lora.rank:
            state.load_weights(previous.reference, REFERENCE)
        reference = score(state, scorer, sequences, compute=compute, eyes=eyes)
    if previous.state is not None and (previous.adapter is not None or not config.lora.rank):
        with loading:
            state.load(previous.state)
    from_previous = config.kl_coef != 0 and not from_initial
    wanted = from_previous or config.old == "trainer"
    current = score(state, scorer, sequences, compute=compute, eyes=eyes) if wanted else None
    return PreparedStage(
        config=config,
        compute=compute,
        scorer=scorer,
        state=state,
        sequences=sequences,
        reference=current if from_previous else reference,
        old=current if config.old == "trainer" else None,
        work=work,
        eyes=eyes,
        loading_s=loading.seconds,
        adapter=adapter,
    )


def own_weights(previous: Checkpoint) -> TensorFiles | None:
    """The files of which a rank reads its part, where they name every weight as the model does; otherwise None."""
    folder = Path(previous.model)
    if not (folder / "config.json").is_file():
        return None
    files, model = TensorFiles(folder, "model"), hollow_model(folder)
    if model.state_dict().keys() > {name for name, _ in model.named_parameters(remove_duplicate=False)}:
        return None  # buffers that are stored too
    stored = files.shapes()
    known = all(stored.get(name) == full_shape(parameter) for name, parameter in model.named_parameters())
    return files if known else None


def _model(previous: Checkpoint, *, config: TrainConfig, compute: Compute, hollow: bool) -> tuple[PreTrainedModel, Any]:
    """With fp32 weights, or with frozen ones and an adapter that trains, and peft's settings of that; on the CPU where
    the ranks will spread it.

    `hollow`: without memory for the weights.
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
    if hollow:
        return with_frozen_tower(hollow_model(Path(previous.model)), config), None
    if not config.lora.rank:
        return with_frozen_tower(load_model(previous.model, dtype="float32", device=device), config), None
    whole = adapted(frozen_base(previous, config), config.lora, vision=config.vision)
    return whole.get_base_model().to(device), whole.peft_config["default"]


def with_frozen_tower(model: PreTrainedModel, config: TrainConfig) -> PreTrainedModel:
    """The model, whose vision tower does not train where the parameters say so."""
    if sees(model) and config.vision == "frozen":
        vision_tower(model).requires_grad_(False)
    return model


def checkpoint_gradients(model: PreTrainedModel) -> None:
    """Recompute activations in the backward pass. That needs training mode, which must bring no dropout: the ratio is
    that of the model that sampled.
    """
    model.train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "attn_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    # The reentrant kind gives no gradient where the input of a block needs none: under LoRA, nowhere.
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


@torch.no_grad()
def score(
    state: TrainState,
    scorer: TokenScorer,
    sequences: StoredSequences,
    *,
    compute: Compute,
    eyes: Eyes | None = None,
) -> list[Tensor]:
    """The log-probabilities of every sequence's loss tokens, in order."""
    scores: dict[int, Tensor] = {}
    parts = _passes(sequences, range(len(sequences)), compute, scorer)
    for indices, counted in compute.ranks.share(parts):
        chosen = [sequences[index] for index in indices]
        batch = collate(chosen, device=compute.device, packed=scorer.packs, eyes=eyes)
        logp, _ = state.optimizing.module(batch)
        if counted:
            found = logp.split([sequences.facts.loss_tokens[index] for index in indices])
            scores.update(zip(indices, found, strict=True))
    if compute.ranks.world > 1:
        every = compute.ranks.gather({index: part.cpu() for index, part in scores.items()})
        scores = {index: part.to(compute.device) for one in every for index, part in one.items()}
    return [scores[index] for index in range(len(sequences))]


def _passes(
    sequences: StoredSequences, indices: Sequence[int], compute: Compute, scorer: TokenScorer
) -> list[list[int]]:
    return micro_batches(
        sequences.facts.lengths, indices, tokens_per_batch=compute.tokens_per_batch, packed=scorer.packs
    )


def exported(
    stage: PreparedStage, previous: Checkpoint, state: Path
) -> tuple[PreTrainedModel, None] | tuple[None, Path]:
    """The model to export, whole, or the folder of an adapter.

    Made from the files of the train state where this process has no whole model.
    """
    if stage.adapter is not None:
        return None, write_adapter(state, stage.adapter)
    if not stage.compute.ranks.sharded:
        return stage.scorer.model, None
    model = with_frozen_tower(load_model(previous.model, dtype=stage.config.dtype), stage.config)
    load_state_weights(model, state, WEIGHTS)
    return model, None


def frozen_base(previous: Checkpoint, config: TrainConfig) -> PreTrainedModel:
    """The run's first weights, in `config.dtype`."""
    base = base_of(previous.model)
    if base is not None and previous.adapter is None:
        raise UserError(
            f"{previous.model}: holds an adapter over other weights, and no adapter can lie over it; write both as one "
            f"with `rla merge {Path(previous.model).parent} FOLDER` and start from that"
        )
    return load_model(previous.model if base is None else base.folder, dtype=config.dtype)


def taught_adapter(previous: Checkpoint, config: TrainConfig) -> tuple[PreTrainedModel, Any]:
    """The base of `previous` in `config.dtype`, frozen, with its adapter, or with a new one, that a warm start trains;
    and peft's settings of that.
    """
    whole = adapted(frozen_base(previous, config), config.lora, vision=config.vision)
    model: PreTrainedModel = whole.get_base_model()
    if previous.adapter is not None and previous.state is not None:
        load_state_weights(model, previous.state, WEIGHTS)
    return model, whole.peft_config["default"]


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


def write_adapter(state: Path, settings: Any) -> Path:
    """The adapter of a train state as peft writes it, in a folder beside the state."""
    from safetensors.torch import save_file

    folder, files = state.with_name(ADAPTER), TensorFiles(state, WEIGHTS, required=True)
    settings.inference_mode = True
    settings.save_pretrained(folder)
    file = folder / SETTINGS
    said = json.loads(file.read_text()) | {"target_modules": sorted(settings.target_modules)}  # a set has no order
    file.write_text(json.dumps(said, indent=2, sort_keys=True) + "\n")
    named = {f"base_model.model.{name.replace('.default.', '.')}": files.read(name) for name in files}
    save_file(named, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    return folder
