"""The model in training: forward passes over sequences, log-probabilities of chosen tokens as the sampler defines them,
and low-rank adapters.

    logp(token) = log_softmax(logits / temperature) over the allowed ids, or over the vocabulary

A pass is one row of sequences behind each other (`rla.training.packing`), or for models that cannot pack a row for
each, padded on the right, which causal attention never sees. The output layer runs on the chosen positions only, in
chunks that are recomputed in the backward pass, so no tensor of batch x tokens x vocabulary ever exists.

Adapters come through `peft`: the base is frozen, and the adapter trains and is carried on (Hu et al. 2021). The base is
the run's first weights rounded to `dtype`, the same in every iteration; a new adapter changes nothing. The checkpoint
holds the adapter and names the folder of the base (`rla.models.checkpoint`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from rla.config.training import TrainConfig
from rla.errors import UserError
from rla.models.checkpoint import Checkpoint, base_of
from rla.models.load import load_model
from rla.pictures.encoder import (
    VisionCollator,
    VisionInputs,
    VisionText,
    has_vision_encoder,
    vision_encoder,
    vision_states,
)
from rla.training.packing import Packing, enable_packing, pack
from rla.training.sequences import TrainingSequence, grouped

VISION_LAYERS = r".*\bvisual\b.*"
CHUNK_LOGITS = 2**25  # logits of one chunk: 128 MiB in fp32
MULTIPLIERS = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier")
SCALED_LOGITS = ("final_logit_softcapping", *MULTIPLIERS, "logits_soft_cap", "output_logit_soft_cap")


def micro_batches(
    lengths: Sequence[int], indices: Sequence[int], *, tokens_per_batch: int, rows: Sequence[int] | None = None
) -> list[list[int]]:
    """`indices`, longest first, cut so that their tokens stay within the budget. A longer sequence is a micro-batch
    alone.

    `rows`: how many padded rows each sequence takes, each as long as the longest of the pass; `lengths` are then those
    of its longest row. None: the sequences are packed.
    """

    def fits(batch: list[int], index: int) -> bool:
        together = (*batch, index)
        if rows is None:
            return sum(lengths[one] for one in together) <= tokens_per_batch
        return sum(rows[one] for one in together) * lengths[batch[0]] <= tokens_per_batch

    return grouped(sorted(indices, key=lambda index: (-lengths[index], index)), fits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One forward pass over B rows of length L with N loss tokens.

    `rows`, `columns` (N) locate the hidden state that predicts a token. `packing` is None for padded rows. `replies`
    (N) numbers the replies of the loss tokens, `segments` (N) the continuations of one prompt: a sequence, or one of
    its branches, which do not see each other. `allowed` (N, A) is filled up with ids of the same row; rows of
    unrestricted tokens (`restricted` false) are unused. `vision` is set for a vision-language model.
    """

    input_ids: Tensor
    packing: Packing | None
    rows: Tensor
    columns: Tensor
    targets: Tensor
    allowed: Tensor | None
    restricted: Tensor | None
    logp_sampled: Tensor
    advantages: Tensor
    replies: Tensor
    segments: Tensor
    vision: VisionInputs | None = None


def collate(
    chosen: Sequence[TrainingSequence], *, device: torch.device, packed: bool, vision: VisionCollator | None = None
) -> Batch:
    """Tensors of the sequences. The last token of a row is only predicted, so it is not an input.

    In padded rows each branch follows its own copy of the prompt: recurrent layers know no masks.
    """
    if not packed:
        chosen = [text for one in chosen for text in one.texts()]
    lengths = [len(one.token_ids) - 1 for one in chosen]
    starts = [0, *itertools.accumulate(lengths)] if packed else [0] * len(chosen)
    input_ids = torch.zeros(*((1, sum(lengths)) if packed else (len(chosen), max(lengths))), dtype=torch.long)
    for row, (one, start, length) in enumerate(zip(chosen, starts, lengths, strict=False)):
        input_ids[0 if packed else row, start : start + length] = torch.tensor(one.token_ids[:-1])
    number = [row for row, one in enumerate(chosen) for _ in one.positions]
    columns = [starts[row] + column for row, one in enumerate(chosen) for column in one.predictors()]
    replies = [(row, reply) for row, one in enumerate(chosen) for reply in one.reply_numbers()]
    segments = [(row, reply if chosen[row].branches else 0) for row, reply in replies]
    branches = [[(start, end, one.prefix) for start, end in one.branches] for one in chosen]
    lists = [ids for one in chosen for ids in one.allowed]
    width = max((len(ids) for ids in lists), default=0)
    padded = [ids + [ids[0] if ids else 0] * (width - len(ids)) for ids in lists]
    inputs = None
    if vision is not None:
        texts = [
            VisionText(
                length=length, images=one.images, branches=[(low, min(high, length), at) for low, high, at in own]
            )
            for one, length, own in zip(chosen, lengths, branches, strict=True)
        ]
        inputs = vision.inputs(texts, packed=packed, device=device)
    return Batch(
        input_ids=input_ids.to(device),
        packing=pack(lengths, branches, device=device) if packed else None,
        rows=torch.tensor([0] * len(number) if packed else number, device=device),
        columns=torch.tensor(columns, device=device),
        targets=torch.tensor([one.token_ids[position] for one in chosen for position in one.positions], device=device),
        allowed=torch.tensor(padded, device=device) if width else None,
        restricted=torch.tensor([bool(ids) for ids in lists], device=device) if width else None,
        logp_sampled=torch.tensor([x for one in chosen for x in one.logp], dtype=torch.float32, device=device),
        advantages=torch.tensor([x for one in chosen for x in one.advantages], dtype=torch.float32, device=device),
        replies=_numbered(replies).to(device),
        segments=_numbered(segments).to(device),
        vision=inputs,
    )


def _numbered(units: Sequence[tuple[int, int]]) -> Tensor:
    """Equal units get equal numbers, from 0 on."""
    numbers: dict[tuple[int, int], int] = {}
    return torch.tensor([numbers.setdefault(unit, len(numbers)) for unit in units], dtype=torch.long)


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
            hidden, head = self._hidden(batch)[batch.rows, batch.columns], self.model.get_output_embeddings()
            weight, bias = head.weight, head.bias
            size = max(1, self.chunk_logits // weight.shape[0])
            recompute = len(hidden) > size and torch.is_grad_enabled()
            parts: list[tuple[Tensor, Tensor]] = []
            for low in range(0, len(hidden), size):
                part = slice(low, low + size)
                given = hidden[part], weight, bias, batch, part
                parts.append(checkpoint(self._score, *given, use_reentrant=False) if recompute else self._score(*given))
            logp, entropy = zip(*parts, strict=True)
            return torch.cat(logp), torch.cat(entropy)

    def _hidden(self, batch: Batch) -> Tensor:
        """Last hidden states (B, L, H)."""
        options: dict[str, Any] = {}
        if batch.packing is not None:
            options = {"packing": batch.packing, "position_ids": batch.packing.places}
        if batch.vision is not None:
            options.pop("position_ids", None)
            return vision_states(self.model, batch.input_ids, batch.vision, **options)
        hidden: Tensor = self.model.base_model(input_ids=batch.input_ids, use_cache=False, **options).last_hidden_state
        return hidden

    def _score(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, batch: Batch, part: slice
    ) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy of the loss tokens in `part`."""
        logits = F.linear(hidden, weight, bias).float() / self.temperature
        if self.banned:
            logits = logits.index_fill(1, torch.tensor(self.banned, device=logits.device), -torch.inf)
        if batch.allowed is not None and batch.restricted is not None:
            offered = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, batch.allowed[part], True)
            logits = logits.masked_fill(~(offered | ~batch.restricted[part, None]), -torch.inf)
        logp = logits.log_softmax(-1)
        with torch.set_grad_enabled(self.train_entropy and torch.is_grad_enabled()):
            entropy = -(logp.exp() * logp.clamp(min=torch.finfo(logp.dtype).min)).sum(-1)
        return logp.gather(1, batch.targets[part, None]).squeeze(1), entropy


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
