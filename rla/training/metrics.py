"""What an update and a stage report: sums over tokens on the device, then plain numbers.

The speed of an update is tokens a second, and the share of the device's matrix rate that the model's own work used:

    model FLOPs = 6 * (weights of the layers) * tokens      forward 2, backward 4 (frozen: 2), per weight and token
                + 6 * hidden * vocabulary * loss tokens     the output layer runs on loss tokens alone
                + 12 * layers * heads * width * pairs       causal attention: L^2 / 2 pairs in a sequence of L tokens;
                                                            of branches each token sees the prompt and its own branch
    utilisation = model FLOPs / seconds / measured matrix rate

Recomputation (gradient checkpointing) is not the model's work; a window is counted as full attention, and what a vision
tower computes is left out. The rate is that of square products in the precision of the forward pass, measured once:
peak figures of data sheets are not reached by any product. (PaLM, appendix B.)
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rla.models.sight import sees, vision_tower

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from rla.training.data import TrainingSequence
    from rla.training.ranks import Compute
    from rla.training.sequence_file import Facts

Metrics = dict[str, Any]
EXTREMES = ("ratio_max", "sampler_gap_max")
COUNTED = ("extreme_tokens",)
AVERAGED = (
    "loss",
    "kl",
    "clip_low_share",
    "clip_high_share",
    "dual_clip_share",
    "correction",
    "masked_share",
    "approx_kl",
    "entropy",
    "grad_norm",
)
SIZES = {"cpu": 768, "cuda": 8192}
REPEATS = 3


def accumulate(totals: dict[str, Tensor], marks: dict[str, Tensor]) -> None:
    """Add up sums and keep extremes on the device, so that nothing waits for it within a step."""
    for key, value in marks.items():
        if key != "ratio":
            totals[key] = totals.get(key, torch.zeros((), device=value.device)) + value.sum()
    for key, value in (("ratio_max", marks["ratio"]), ("sampler_gap_max", marks["sampler_gap"])):
        totals[key] = torch.maximum(totals[key], value.max()) if key in totals else value.max()


def means(totals: dict[str, Tensor], *, tokens: int) -> Metrics:
    """Of what `accumulate` has gathered over `tokens` loss tokens; of `COUNTED` the sums."""
    found = {key: float(value) if key in EXTREMES else float(value) / tokens for key, value in totals.items()}
    return found | {key: int(totals[key]) for key in COUNTED}


def finite(metrics: Metrics) -> Metrics:
    """Those that are numbers: JSON knows no others."""
    return {key: value for key, value in metrics.items() if math.isfinite(value)}


def statistics(sequences: Iterable[TrainingSequence]) -> Metrics:
    """Counts, lengths, and advantages over the loss tokens."""
    lengths: list[int] = []
    count, total, squares = 0, 0.0, 0.0
    for one in sequences:
        lengths.append(len(one.token_ids))
        count += len(one.advantages)
        total += sum(one.advantages)
        squares += sum(value * value for value in one.advantages)
    mean = total / count
    return {
        "sequences": len(lengths),
        "tokens": sum(lengths),
        "loss_tokens": count,
        "length_mean": sum(lengths) / len(lengths),
        "length_max": max(lengths),
        "advantage_mean": mean,
        "advantage_std": max(0.0, squares / count - mean * mean) ** 0.5,
    }


def speed(work: Work, compute: Compute, facts: Facts, indices: Sequence[int], seconds: float) -> Metrics:
    """Seconds of an update, tokens a second, and the share of the device's matrix rate."""
    rate = matrix_rate(compute.device.type, torch.bfloat16 if compute.mixed else torch.float32)
    lengths = [facts.lengths[index] for index in indices]
    losses = sum(facts.loss_tokens[index] for index in indices)
    pairs = sum(facts.pairs[index] for index in indices)
    flops = work.flops(tokens=sum(lengths), loss_tokens=losses, pairs=pairs)
    return {
        **pace(sum(lengths), seconds),
        "flop_utilisation": round(flops / seconds / (rate * compute.ranks.world), 4),
    }


def summary(history: Sequence[Metrics], *, gap: bool = True) -> Metrics:
    """Means over the updates, the largest ratio, and the gap of sampler and trainer in the first update. `gap`: whether
    to tell that gap. Where replies of earlier models train, it would also measure how far the model has come since.

    `skipped_updates` are among the `updates`; their numbers are in no mean. `extreme_tokens`: those of all updates that
    were masked because their ratio is beyond use.
    """
    done = [one for one in history if not one["skipped"]]
    known = {"sampler_gap": "sampler_gap_mean", "sampler_gap_max": "sampler_gap_max"}
    return {
        "updates": len(history),
        "skipped_updates": len(history) - len(done),
        **{key: sum(one[key] for one in done) / len(done) for key in AVERAGED if done and key in done[0]},
        **{key: sum(one[key] for one in history) for key in COUNTED},
        **({"ratio_max": max(one["ratio_max"] for one in done)} if done else {}),
        **{name: history[0][key] for key, name in known.items() if gap and key in history[0]},
        "lr": history[-1]["lr"],
    }


def counts(facts: Facts) -> Metrics:
    return {
        "sequences": len(facts.lengths),
        "too_long": facts.too_long,
        "shortened": facts.shortened,
        "replies": facts.replies,
        "replies_too_long": facts.replies_too_long,
        "tokens": sum(facts.lengths),
        "loss_tokens": sum(facts.loss_tokens),
    }


def pace(tokens: int, seconds: float) -> Metrics:
    return {"seconds": round(seconds, 3), "tokens_per_second": round(tokens / seconds, 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one token, one loss token and one pair of tokens cost, in FLOPs of a forward and a backward pass."""

    token: float
    loss_token: float
    pair: float

    @classmethod
    def of(cls, model: PreTrainedModel) -> Work:
        text = model.config.get_text_config()
        inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
        aside = {id(inputs.weight), id(outputs.weight)}
        aside |= {id(weight) for weight in vision_tower(model).parameters()} if sees(model) else set()
        layers = [weight for weight in model.parameters() if id(weight) not in aside]
        passes = sum((6 if weight.requires_grad else 4) * weight.numel() for weight in layers)
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        attention = 12.0 * text.num_hidden_layers * text.num_attention_heads * width
        return cls(token=float(passes), loss_token=6.0 * outputs.weight.numel(), pair=attention)

    def flops(self, *, tokens: int, loss_tokens: int, pairs: float) -> float:
        """Of one update."""
        return self.token * tokens + self.loss_token * loss_tokens + self.pair * pairs


class Stopwatch:
    """The seconds spent inside of it, over all times that it was entered."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.monotonic() - self._started


@cache
def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """FLOPs a second of a square matrix product, the best of a few."""
    size = SIZES.get(device, SIZES["cpu"])
    # A generator of their own: the training's random state must not move. Equal numbers would be easy for a GPU.
    draw = torch.Generator(device).manual_seed(0)
    left, right = (torch.randn(size, size, generator=draw, device=device).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(REPEATS + 1):
        _wait(device)
        started = time.perf_counter()
        left @ right
        _wait(device)
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
