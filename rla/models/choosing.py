"""What `rla init --model` writes for a chat model: whose parameters it begins with, what it changes, and why.

Memory of training, in bytes: 16 a weight that trains (fp32 weight, gradient, two moments); 4 a frozen one, which a warm
start computes in fp32; of a token in a pass, whose activations are computed again layer by layer, 4 H for each layer
and 30 H + 8 I for one, with H the hidden and I the intermediate size; and half a GB of logits.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from rla.errors import UserError
from rla.models.load import folder_of, hollow_model, load_tokenizer
from rla.thoughts import TAG

STATE, FROZEN, LOGITS = 16, 4, 0.5e9
RANK = 32  # of an adapter
FULL_SHARE, TRAINING_SHARE = 0.25, 0.85  # of the memory: that all weights may take, and that a pass may fill
SMALL = 2.5e9  # weights: a smaller model seldom keeps to a form of answers, and is taught to say commands
PASSES = (16384, 8192, 4096, 2048, 1024)  # tokens; the last two on a CPU
ENOUGH = 4096  # tokens of context; twice as many if replies reason


class ModelRecipe(NamedTuple):
    """`changes` of the parameters of `pipeline`, as `key=value`. `reasons`: a line each."""

    pipeline: str
    changes: list[str]
    reasons: list[str]


def recipe_for(source: str, *, memory: float | None) -> ModelRecipe:
    """Of a model folder or hub id; no weights are read. `memory`: GB of the GPU; 0: there is none; None: as it is here.

    Raises UserError for a model that cannot chat, or that does not fit.
    """
    model, thinks = hollow_model(source), TAG.search(str(load_tokenizer(source).chat_template)) is not None
    model.tie_weights()  # else a tied output layer would count twice
    config = model.config.get_text_config()
    layers, hidden, limit = (
        int(getattr(config, name)) for name in ("num_hidden_layers", "hidden_size", "max_position_embeddings")
    )
    wide = int(getattr(config, "intermediate_size", 4 * hidden))
    weights = sum(parameter.numel() for parameter in model.parameters())
    inner = (one for name, one in model.named_modules() if type(one).__name__ == "Linear" and "head" not in name)
    adapter = RANK * sum(sum(layer.weight.shape) for layer in inner)
    gpu = gpu_memory() if memory is None else memory * 1e9
    room = gpu or float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    lora, small = weights * STATE > FULL_SHARE * room, weights < SMALL
    state = STATE * adapter + FROZEN * weights if lora else STATE * weights
    for tokens in PASSES if gpu else PASSES[-2:]:
        need = state + LOGITS + tokens * (4 * layers * hidden + 30 * hidden + 8 * wide)
        if need <= TRAINING_SHARE * room:
            break
    else:
        raise UserError(
            f"--model {source}: trains in {need / 1e9:.1f} GB, and {room / 1e9:.1f} GB are there; take a smaller "
            "model, or say by --memory how much the GPU has"
        )
    context = min(limit, ENOUGH if small else 2 * ENOUGH)
    folder, taught = folder_of(source), ("warm_start.policy", "warm_start.reward")
    place = str(folder.resolve()) if folder else source
    changes = [f"model.policy={place}", f"model.reward={place}", f"model.context={context}"]
    changes.append(f"generator.context={context}")
    for name in ("train_policy", "train_rm"):
        changes += [f"{name}.tokens_per_batch={tokens}", f"{name}.lora.rank={RANK if lora else 0}"]
    changes += [f"{name}.tokens_per_pass={tokens}" for name in taught]
    changes += [f"{name}.lr=null" for name in ("train_policy", "train_rm", *taught)]
    changes += [] if lora else ["generator.lora=merged"]
    if small:
        asked = (
            "replies are one of the commands offered, which a warm start teaches: so small a model seldom reasons well"
        )
    else:
        reply = min(2048 if thinks else 512, context // 4)
        asked = f"replies reason in up to {reply} tokens and end with a command's number; no warm start"
        changes += ["warm_start.enabled=false", "policy.reply=index", "policy.decoding=free", "policy.history=window"]
        changes += ["judge.prompt=published", "judge.decoding=free"]
        changes += [f"policy.max_tokens={reply}", f"judge.max_tokens={reply}"]
    whole = f"{STATE * weights / 1e9:.1f} GB while they train, {'more than' if lora else 'at most'} {FULL_SHARE:.0%} of"
    reasons = [
        f"{Path(source).name}: {weights / 1e6:,.0f}M weights, {layers} layers, context of {limit:,} tokens, a chat "
        f"template{', thinks' if thinks else ''}",
        f"{f'LoRA of rank {RANK}' if lora else 'all weights train'}: they take {whole} {room / 1e9:.0f} GB",
        f"passes of {tokens:,} tokens: training takes about {need / 1e9:.1f} GB",
        f"learning rates are the defaults of {'LoRA' if lora else 'full training'}",
        asked,
    ]
    return ModelRecipe("alfworld-24gb" if gpu else "alfworld-laptop", changes, reasons)


def gpu_memory() -> float:
    """Bytes of the first GPU; 0 where there is none."""
    import torch

    return float(torch.cuda.get_device_properties(0).total_memory) if torch.cuda.is_available() else 0.0
