"""Where a stage call ran: a label of the machine, the GPUs that it used, and its slice. It stands with the times of the
call (`rla.pipeline.timings`) and in no shard.

    {"host": "node-3", "devices": [{"gpu": "2", "name": "NVIDIA H200"}], "slice": "3/4"}

`devices` is empty where the stage ran on the CPU, or asked a server elsewhere.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from rla.pipeline.context import StageContext
from rla.processes.ranks import world
from rla.processes.workers import ON_GPUS, gpus_each, visible_gpus, workers_of

TRAINING = ("warm-start", "train-policy", "train-rm")


def machine_facts(ctx: StageContext) -> dict[str, Any]:
    """What the record of the call says of the machine."""
    part = {"slice": ctx.options["slice"]} if "slice" in ctx.options else {}
    return {"host": socket.gethostname(), "devices": used_gpus(ctx), **part}


def used_gpus(ctx: StageContext) -> list[dict[str, str]]:
    """The GPUs of this machine that the call used, each as CUDA_VISIBLE_DEVICES names it, with its model's name."""
    most = gpus_of_stage(ctx)
    if most == 0:
        return []
    gpus = visible_gpus()
    used = gpus if most is None else gpus[:most]
    return [{"gpu": name, "name": model_name(index)} for index, name in enumerate(used)]


def gpus_of_stage(ctx: StageContext) -> int | None:
    """How many GPUs a call uses where it sees enough; None: all that it sees."""
    config = ctx.config
    if ctx.spec.name in TRAINING:
        return None if config.launch.training else world()
    asks = "generator" in ctx.spec.sections
    asks &= ctx.spec.name != "adapt-env" or config.adaptation.proposer == "llm"
    asks &= ctx.spec.name != "score-steps" or (config.judge.enabled and config.judge.trains)
    if not asks or config.generator.backend not in ON_GPUS:
        return 0
    alone = "slice" in ctx.options
    workers = 1 if alone else int(ctx.options.get("workers") or workers_of(config.generator))
    return gpus_each(config.generator) * workers


def model_name(index: int) -> str:
    """Of the GPU at this place among the visible ones; empty where nobody has loaded what knows it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or index >= torch.cuda.device_count():
        return ""
    return str(torch.cuda.get_device_name(index))
