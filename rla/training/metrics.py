"""What an update and a stage report: sums over tokens on the device, then plain numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rla.training.speed import Work, matrix_rate

if TYPE_CHECKING:
    from rla.training.compute import Compute
    from rla.training.data import TrainingSequence
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
