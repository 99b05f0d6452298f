"""What an update and a stage report: sums over tokens on the device, then plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rla.training.speed import Work, matrix_rate

if TYPE_CHECKING:
    from rla.training.compute import Compute
    from rla.training.data import TrainingSequence

Metrics = dict[str, Any]
EXTREMES = ("ratio_max", "sampler_gap_max")
AVERAGED = (
    "loss",
    "kl",
    "clip_low_share",
    "clip_high_share",
    "dual_clip_share",
    "correction",
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
    """Of what `accumulate` has gathered over `tokens` loss tokens."""
    return {key: float(value) if key in EXTREMES else float(value) / tokens for key, value in totals.items()}


def statistics(sequences: Sequence[TrainingSequence]) -> Metrics:
    """Counts, lengths, and advantages over the loss tokens."""
    advantages = torch.tensor([value for one in sequences for value in one.advantages])
    lengths = [len(one.token_ids) for one in sequences]
    return {
        "sequences": len(sequences),
        "tokens": sum(lengths),
        "loss_tokens": len(advantages),
        "length_mean": sum(lengths) / len(lengths),
        "length_max": max(lengths),
        "advantage_mean": float(advantages.mean()),
        "advantage_std": float(advantages.std(correction=0)),
    }


def speed(work: Work, compute: Compute, sequences: Sequence[TrainingSequence], seconds: float) -> Metrics:
    """Seconds of an update, tokens a second, and the share of the device's matrix rate."""
    rate = matrix_rate(compute.device.type, torch.bfloat16 if compute.mixed else torch.float32)
    return {
        **pace(sum(len(one.token_ids) for one in sequences), seconds),
        "flop_utilisation": round(work.flops(sequences) / seconds / (rate * compute.ranks.world), 4),
    }


def summary(history: Sequence[Metrics]) -> Metrics:
    """Means over the updates, the largest ratio, and the gap of sampler and trainer in the first update."""
    return {
        "updates": len(history),
        **{key: sum(one[key] for one in history) / len(history) for key in AVERAGED if key in history[0]},
        "ratio_max": max(one["ratio_max"] for one in history),
        "sampler_gap_mean": history[0]["sampler_gap"],
        "sampler_gap_max": history[0]["sampler_gap_max"],
        "lr": history[-1]["lr"],
    }


def counts(sequences: Sequence[TrainingSequence], *, too_long: int) -> Metrics:
    return {
        "sequences": len(sequences),
        "too_long": too_long,
        "tokens": sum(len(sequence.token_ids) for sequence in sequences),
        "loss_tokens": sum(len(sequence.positions) for sequence in sequences),
    }


def pace(tokens: int, seconds: float) -> Metrics:
    return {"seconds": round(seconds, 3), "tokens_per_second": round(tokens / seconds, 1)}
