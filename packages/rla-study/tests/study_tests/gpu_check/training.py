"""The part `training`: updates of the training loop itself on models of real shapes with random weights."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from rla_study.planning.memory import Launched, training_bytes
from rla_study.planning.shapes import SHAPES

from rla.training.loop import PreparedStage, update
from study_tests.bench.bench_shape import prepared, settings_of
from study_tests.bench.utilisation import matrix_rate, utilisation
from study_tests.gpu_check.call import Call, measure

REAL = {"qwen2.5-0.5b": 32, "qwen2.5-1.5b": 16, "qwen2.5-7b": 8}  # trajectories of an update
TIMED = 2  # updates, after one that warms up
# Kinds of kernels by name, the first that fits; FlashAttention's names also hold the words of matrix products.
KINDS = {
    "attention": re.compile(r"flash|fmha|attention|scaled_dot", re.IGNORECASE),
    "optimizer": re.compile(r"adam|multi_tensor|foreach", re.IGNORECASE),
    "matrix products": re.compile(r"gemm|gemv|nvjet|cutlass|xmma|aten::(add|b)?mm", re.IGNORECASE),
    "copies and casts": re.compile(r"copy|memcpy|memset|catarray", re.IGNORECASE),
}
OTHER = "elementwise and norms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`rank`: of LoRA, 0: all weights. `weights`: their precision; in bfloat16 a model is timed, never trained.
    `batch`: tokens of a forward pass. `looked_into`: whether kernels are timed, too.
    """

    shape: str
    rank: int = 0
    weights: str = "float32"
    packed: bool = True
    checkpointing: bool = True
    batch: int = 16384
    looked_into: bool = False

    def row(self) -> dict[str, str]:
        trains = f"LoRA of rank {self.rank}" if self.rank else "all weights"
        trains += " in bf16, to time it" if self.weights == "bfloat16" else ""
        trains += "" if self.checkpointing else f", no checkpointing, passes of {self.batch:,} tokens"
        return {"shape": self.shape, "trains": trains, "rows": "packed" if self.packed else "padded"}


def cases() -> Iterator[Case]:
    """The most telling ones first, in case the time runs out."""
    for packed in (True, False):
        for shape in REAL:
            yield Case(shape=shape, packed=packed, looked_into=packed and shape == "qwen2.5-0.5b")
            yield Case(shape=shape, packed=packed, rank=32)
        yield Case(shape="qwen2.5-7b", packed=packed, weights="bfloat16", looked_into=packed)
        if packed:
            yield Case(shape="qwen2.5-0.5b", checkpointing=False, batch=8192)
            yield Case(shape="qwen2.5-1.5b", checkpointing=False, batch=8192)
            yield Case(shape="qwen2.5-7b", rank=32, checkpointing=False, batch=4096)


def tiny_cases() -> Iterator[Case]:
    for packed in (True, False):
        yield Case(shape="tiny", packed=packed, batch=512, looked_into=packed)
        yield Case(shape="tiny", packed=packed, batch=512, rank=4)


def training(call: Call) -> None:
    for dtype in (torch.bfloat16, torch.float32) if call.device == "cuda" else (torch.float32,):
        call.add(precision=str(dtype).rpartition(".")[2], tflops=round(matrix_rate(call.device, dtype) / 1e12, 2))
    for case in tiny_cases() if call.tiny else cases():
        call.attempt(case.row(), partial(measured, case, tiny=call.tiny))


def measured(case: Case, *, tiny: bool) -> dict[str, Any]:
    """The faster update of `TIMED`, or the reason why there is none."""
    tokens = 256 if tiny else 4096
    settings = settings_of(tokens=tokens, tokens_per_batch=case.batch, checkpointing=case.checkpointing, rank=case.rank)
    cuda = torch.cuda.is_available()
    if cuda:
        needed = training_bytes(SHAPES[case.shape], settings, Launched(), cuda=True).total
        there = torch.cuda.get_device_properties(0).total_memory
        if case.weights == "float32" and needed > there:
            return {"reason": f"does not fit: about {needed / 2**30:.0f} GiB of {there / 2**30:.0f}"}
        torch.cuda.reset_peak_memory_stats()
    count = REAL.get(case.shape, 4)
    with prepared(SHAPES[case.shape], settings, weights=case.weights, trajectories_per_update=count) as stage:
        if not case.packed:
            stage.scorer.packs = False
            stage.scorer.model.set_attn_implementation("sdpa")
        update(stage, range(count))
        best = min((update(stage, range(count)) for _ in range(TIMED)), key=lambda found: found["seconds"])
        row = {key: best[key] for key in ("tokens", "seconds", "tokens_per_second")}
        row["flop_utilisation"] = utilisation(stage, best)
        row |= {"peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1)} if cuda else {}
        return row | ({"parts": parts_of(stage, count)} if case.looked_into else {})


def parts_of(stage: PreparedStage, count: int) -> dict[str, float]:
    """Shares of the time of an update, by kind of kernel; `idle`: the device waits, for the host or for memory."""
    cuda = stage.compute.device.type == "cuda"
    activity = torch.profiler.ProfilerActivity.CUDA if cuda else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as seen:
        started = time.perf_counter()
        update(stage, range(count))
        if cuda:
            torch.cuda.synchronize()
        wall = time.perf_counter() - started
    spent = Counter(dict.fromkeys([*KINDS, OTHER], 0.0))
    for event in seen.key_averages():
        if not event.is_user_annotation:  # such as "Optimizer.step", which spans the kernels of others
            spent[kind_of(event.key)] += (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e6
    spent["idle"] = max(0.0, wall - sum(spent.values()))
    whole = sum(spent.values())
    return {kind: round(seconds / whole, 3) for kind, seconds in spent.items()}


def kind_of(kernel: str) -> str:
    return next((kind for kind, names in KINDS.items() if names.search(kernel)), OTHER)


if __name__ == "__main__":
    measure(training)
