"""What `rla init --model` writes for a chat model: whose parameters it begins with, what it changes, and why.

Memory of training, in bytes: 16 a weight that trains (fp32 weight, gradient, two moments); of a frozen weight 2, and 4
in a warm start, which computes in fp32; of a token in a pass, whose activations are computed again layer by layer, 4 H
for each layer and 30 H + 8 I for one, with H the hidden and I the intermediate size; and half a GB of logits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rla.errors import UserError
from rla.models.load import folder_of, hollow_model, load_tokenizer
from rla.thoughts import TAG

STATE, LOGITS = 16, 0.5e9
RANK = 32  # of the adapters in alfworld-24gb
FULL_SHARE, TRAINING_SHARE = 0.25, 0.85  # of the memory: that all weights may take, and that a pass may fill
SMALL = 2.5e9  # weights: a smaller model seldom keeps to a form of answers, and is taught to say commands
PASSES = (16384, 8192, 4096, 2048, 1024)
ENOUGH = 4096  # tokens of context; 8192 where replies reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`changes` of the parameters of `pipeline`, as `key=value`. `reasons`: a line each."""

    pipeline: str
    changes: list[str]
    reasons: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Of a model: counts of its weights, and of those of an adapter of rank `RANK`; tokens of its context."""

    name: str
    weights: int
    adapter: int
    layers: int
    hidden: int
    intermediate: int
    context: int
    thinks: bool

    def pass_bytes(self, tokens: int) -> float:
        return tokens * (4 * self.layers * self.hidden + 30 * self.hidden + 8 * self.intermediate) + LOGITS

    def training_bytes(self, tokens: int, *, lora: bool, frozen: int) -> float:
        """`frozen`: bytes of a weight that does not train."""
        state = STATE * self.adapter + frozen * self.weights if lora else STATE * self.weights
        return state + self.pass_bytes(tokens)


def facts_of(source: str) -> Facts:
    """Of a model folder or hub id; no weights are read. Raises UserError for a model that cannot chat."""
    model, tokenizer = hollow_model(source), load_tokenizer(source)
    config = model.config.get_text_config()
    layers = [
        module for name, module in model.named_modules() if type(module).__name__ == "Linear" and "head" not in name
    ]
    hidden = int(config.hidden_size)
    return Facts(
        name=Path(source).name,
        weights=sum(parameter.numel() for parameter in model.parameters()),
        adapter=sum(RANK * sum(layer.weight.shape) for layer in layers),
        layers=int(config.num_hidden_layers),
        hidden=hidden,
        intermediate=int(getattr(config, "intermediate_size", None) or 4 * hidden),
        context=int(getattr(config, "max_position_embeddings", None) or ENOUGH),
        thinks=TAG.search(str(tokenizer.chat_template)) is not None,
    )


def choose(source: str, *, memory: float | None) -> Choice:
    """`memory`: GB of the GPU; 0: it trains on CPUs; None: this machine's. Raises UserError if it does not fit."""
    facts, gpu = facts_of(source), gpu_memory() if memory is None else memory * 1e9
    room = gpu or float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    folder = folder_of(source)
    found = _Chosen(facts=facts, gpu=gpu > 0, room=room, source=str(folder.resolve()) if folder else source)
    return Choice(
        pipeline="alfworld-24gb" if gpu else "alfworld-laptop", changes=list(found.changes()), reasons=found.reasons()
    )


def gpu_memory() -> float:
    """Bytes of the first GPU; 0 where there is none."""
    import torch

    return float(torch.cuda.get_device_properties(0).total_memory) if torch.cuda.is_available() else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    facts: Facts
    gpu: bool
    room: float
    source: str

    @property
    def small(self) -> bool:
        return self.facts.weights < SMALL

    @property
    def lora(self) -> bool:
        return STATE * self.facts.weights > FULL_SHARE * self.room

    @property
    def frozen(self) -> int:
        """Bytes of a frozen weight in the stage that needs most."""
        return 2 if self.gpu and not self.small else 4

    @property
    def tokens(self) -> int:
        """Of a pass. Raises UserError where none fits."""
        for tokens in PASSES[0 if self.gpu else 3 :]:
            if self.need(tokens) <= TRAINING_SHARE * self.room:
                return tokens
        raise UserError(
            f"--model {self.source}: trains in {self.need(PASSES[-1]) / 1e9:.1f} GB, and {self.room / 1e9:.0f} GB are "
            "there; take a smaller model, or say by --memory how much the GPU has"
        )

    def need(self, tokens: int) -> float:
        return self.facts.training_bytes(tokens, lora=self.lora, frozen=self.frozen)

    @property
    def context(self) -> int:
        return min(self.facts.context, ENOUGH if self.small else 2 * ENOUGH)

    @property
    def reply_tokens(self) -> int:
        return min(2048 if self.facts.thinks else 512, self.context // 4)

    def changes(self) -> Iterator[str]:
        yield from (f"model.policy={self.source}", f"model.reward={self.source}")
        yield from (f"{key}.context={self.context}" for key in ("model", "generator"))
        for name in ("train_policy", "train_rm"):
            yield f"{name}.tokens_per_batch={self.tokens}"
            yield f"{name}.lora.rank={RANK if self.lora else 0}"
        taught = ("warm_start.policy", "warm_start.reward")
        yield from (f"{name}.lr=null" for name in ("train_policy", "train_rm", *taught) if self.lora)
        if not self.lora:
            yield "generator.lora=merged"
        if self.small:
            yield from (f"{name}.tokens_per_pass={self.tokens}" for name in taught)
            return
        yield "warm_start.enabled=false"
        yield from ("policy.reply=index", "policy.decoding=free", "policy.history=window")
        yield from ("judge.prompt=published", "judge.decoding=free")
        yield from (f"{name}.max_tokens={self.reply_tokens}" for name in ("policy", "judge"))

    def reasons(self) -> list[str]:
        facts, share = self.facts, f"{FULL_SHARE:.0%} of {self.room / 1e9:.0f} GB"
        whole = f"{STATE * facts.weights / 1e9:.1f} GB"
        kind = (
            f"LoRA of rank {RANK}: all weights take {whole} while they train, more than {share}; the adapter takes "
            f"{STATE * facts.adapter / 1e9:.1f} GB"
            if self.lora
            else f"all weights train: they take {whole}, at most {share}"
        )
        asked = (
            "replies are the command itself, one of those offered, because a model of this size seldom keeps to a form "
            "of answers; a warm start teaches policy and judge"
            if self.small
            else f"replies reason in up to {self.reply_tokens} tokens and end with a command's number; no warm start"
        )
        return [
            f"{facts.name}: {facts.weights / 1e6:,.0f}M weights, {facts.layers} layers, context of {facts.context:,} "
            f"tokens, a chat template{', thinks' if facts.thinks else ''}",
            kind,
            f"passes of {self.tokens:,} tokens: training takes about {self.need(self.tokens) / 1e9:.1f} GB",
            f"learning rates: {'the defaults of LoRA' if self.lora else 'as the pipeline has them, or the defaults'}",
            asked,
        ]
