"""Where a stage call ran: a label of the machine, the GPUs that it used, and its slice. It stands with the times of the
call (`rla.pipeline.timings`) and in no shard.

    {"host": "node-3", "devices": [{"gpu": "2", "name": "NVIDIA H200"}], "slice": "3/4"}

`devices` is empty where the stage ran on the CPU, or asked a server elsewhere. Devices of other machines have their
host and the spans of their use (`rla.processes.devices`).
"""

from __future__ import annotations

import socket
from typing import Any

from rla.pipeline.context import StageContext
from rla.processes.devices import USED, model_name, uuid_of
from rla.processes.ranks import world
from rla.processes.workers import ON_GPUS, gpus_each, visible_gpus, workers_of

TRAINING = ("train-policy", "train-rm")


def machine_facts(ctx: StageContext) -> dict[str, Any]:
    """What the record of the call says of the machine."""
    part = {"slice": ctx.options["slice"]} if "slice" in ctx.options else {}
    return {"host": socket.gethostname(), "devices": [*used_gpus(ctx), *USED.taken()], **part}


def used_gpus(ctx: StageContext) -> list[dict[str, str]]:
    """The GPUs of this machine that the call used, each as CUDA_VISIBLE_DEVICES names it, with its model's name and the
    beginning of its UUID: in a job each task may call its own GPU 0.
    """
    most = gpus_of_stage(ctx)
    if most == 0:
        return []
    gpus = visible_gpus()
    used = gpus if most is None else gpus[:most]
    return [{"gpu": f"{name}{uuid_of(index)}", "name": model_name(index)} for index, name in enumerate(used)]


def gpus_of_stage(ctx: StageContext) -> int | None:
    """How many GPUs a call uses where it sees enough; None: all that it sees."""
    config = ctx.config
    if ctx.spec.name == "warm-start":  # trains in this process, whatever `launch.training` says
        return world()
    if ctx.spec.name in TRAINING:
        if config.launch.own is not None:
            return 0
        return None if config.launch.training else world()
    asks = "generator" in ctx.spec.sections
    adaptation = config.adaptation
    asks &= ctx.spec.name != "adapt-env" or (adaptation.proposer == "llm" and not adaptation.llm.server)
    asks &= ctx.spec.name != "score-steps" or (config.judge.enabled and config.judge.trains)
    if not asks or config.generator.backend not in ON_GPUS:
        return 0
    alone = "slice" in ctx.options
    workers = 1 if alone else int(ctx.options.get("workers") or workers_of(config.generator))
    return gpus_each(config.generator) * workers
