"""The model in training: log-probabilities of chosen tokens as the sampler defines them, and low-rank adapters.

    logp(token) = log_softmax(logits / temperature) over the allowed ids, or over the vocabulary

The output layer runs on the chosen positions only, in chunks that are recomputed in the backward pass, so no tensor of
batch x tokens x vocabulary ever exists.

Adapters come through `peft`: the base is frozen, and the adapter trains and is carried on (Hu et al. 2021). The base is
the run's first weights rounded to `dtype`, the same in every iteration; a new adapter changes nothing. The checkpoint
holds the adapter and names the folder of the base (`rla.models.checkpoint`).
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from rla.config.training import TrainConfig
from rla.errors import UserError
from rla.models.checkpoint import Checkpoint, base_of
from rla.models.load import load_model
from rla.pictures.encoder import has_vision_encoder, vision_encoder, vision_states
from rla.training.batches import Batch
from rla.training.packing import enable_packing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from transformers import PreTrainedModel

VISION_LAYERS = r".*\bvisual\b.*"
CHUNK_LOGITS = 2**25  # logits of one chunk: 128 MiB in fp32
SCALED_LOGITS = (
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "output_multiplier",
    "logits_soft_cap",
    "output_logit_soft_cap",
)


class TokenScorer(nn.Module):
    """The model and its output layer as one module from a batch to (logp (N), entropy (N)), both fp32.

    The entropy has a gradient only with `train_entropy`. `mixed`: the forward pass runs in bf16, which moves
    log-probabilities by hundredths. `packs`: whether the model takes packed batches. `banned`: ids that the sampler
    never drew, whose logits count as -inf. Raises UserError for a model that rescales its logits.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        temperature: float,
        chunk_logits: int = CHUNK_LOGITS,
        train_entropy: bool = False,
        mixed: bool = False,
        banned: Sequence[int] = (),
    ) -> None:
        super().__init__()
        text = model.config.get_text_config()
        scaled = [name for name in SCALED_LOGITS if getattr(text, name, None) not in (None, 1.0)]
        if scaled:
            raise UserError(f"models of type {text.model_type} rescale their logits ({scaled[0]}): not supported")
        self.packs = enable_packing(model)
        self.model = model
        self.temperature = temperature
        self.chunk_logits = chunk_logits
        self.train_entropy = train_entropy
        self.mixed = mixed
        self.banned = list(banned)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        # Not around the call: DeepSpeed's engine switches off an autocast that it finds around itself.
        device = batch.input_ids.device.type
        with torch.autocast(device, dtype=torch.bfloat16) if self.mixed else contextlib.nullcontext():
            chosen = self._hidden(batch)[batch.rows, batch.columns]
            head = self.model.get_output_embeddings()
            weight, bias = head.weight, head.bias
            banned = torch.tensor(self.banned, device=chosen.device) if self.banned else None
            count, size = len(batch.targets), max(1, self.chunk_logits // head.weight.shape[0])
            recompute = count > size and torch.is_grad_enabled()
            parts: list[tuple[Tensor, Tensor]] = []
            for low in range(0, count, size):
                part = slice(low, low + size)
                arguments = (
                    chosen[part],
                    weight,
                    bias,
                    batch.targets[part],
                    None if batch.allowed is None else batch.allowed[part],
                    None if batch.restricted is None else batch.restricted[part],
                    banned,
                )
                parts.append(
                    checkpoint(self._score, *arguments, use_reentrant=False) if recompute else self._score(*arguments)
                )
            logp, entropy = zip(*parts, strict=True)
            return torch.cat(logp), torch.cat(entropy)

    def _hidden(self, batch: Batch) -> Tensor:
        """Last hidden states (B, L, H)."""
        options: dict[str, Any] = {}
        if batch.packing is not None:
            options = {"packing": batch.packing, "position_ids": batch.packing.places}
        elif batch.forks is not None:
            options = {"attention_mask": batch.forks.mask(self.model), "position_ids": batch.forks.place}
        if batch.vision is not None:
            options.pop("position_ids", None)
            return vision_states(self.model, batch.input_ids, batch.vision, **options)
        hidden: Tensor = self.model.base_model(input_ids=batch.input_ids, use_cache=False, **options).last_hidden_state
        return hidden

    def _score(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        allowed: Tensor | None,
        restricted: Tensor | None,
        banned: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of one chunk of tokens."""
        logits = F.linear(hidden, weight, bias).float() / self.temperature
        if banned is not None:
            logits = logits.index_fill(1, banned, -torch.inf)
        if allowed is not None and restricted is not None:
            offered = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, allowed, True)
            logits = logits.masked_fill(~(offered | ~restricted[:, None]), -torch.inf)
        logp = logits.log_softmax(-1)
        with torch.set_grad_enabled(self.train_entropy and torch.is_grad_enabled()):
            entropy = -(logp.exp() * logp.clamp(min=torch.finfo(logp.dtype).min)).sum(-1)
        return logp.gather(1, targets[:, None]).squeeze(1), entropy


def freeze_vision(model: PreTrainedModel, config: TrainConfig) -> PreTrainedModel:
    """Freeze the vision encoder, if there is one and the parameters say so."""
    if has_vision_encoder(model) and config.vision == "frozen":
        vision_encoder(model).requires_grad_(False)
    return model


def checkpoint_gradients(model: PreTrainedModel) -> None:
    """Recompute activations in the backward pass.

    That needs training mode, which must not bring dropout, because the model that sampled had none.
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


def load_adapted(previous: Checkpoint, config: TrainConfig) -> tuple[PreTrainedModel, Any]:
    """The run's first weights in `config.dtype`, frozen, with a new adapter, and peft's settings of the adapter."""
    base = base_of(previous.model)
    if base is not None and previous.adapter is None:
        raise UserError(
            f"{previous.model}: holds an adapter over other weights, and no adapter can lie over it; write both as one "
            f"with `rla merge {Path(previous.model).parent} FOLDER` (a command of an optional package) "
            "and start from that"
        )
    return add_new_adapter(load_model(previous.model if base is None else base.folder, dtype=config.dtype), config)


def add_new_adapter(model: PreTrainedModel, config: TrainConfig) -> tuple[PreTrainedModel, Any]:
    """`model` with a new adapter on the linear layers of its blocks, not of a frozen vision encoder."""
    import peft

    settings = peft.LoraConfig(
        exclude_modules=VISION_LAYERS if config.vision == "frozen" and has_vision_encoder(model) else None,
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    whole: Any = peft.get_peft_model(model, settings)
    return whole.get_base_model(), whole.peft_config["default"]
