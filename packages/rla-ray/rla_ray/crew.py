"""How many workers train on a Ray cluster, at first and after a loss.

    n = launch.own.workers, or one per GPU (one per node on a cluster without GPUs); Ray starts all of them or none
    a node has room for min(CPUs / launch.own.cpus, GPUs / launch.own.gpus) workers, each rounded down

No output depends on n. With HSDP (`launch.replicas` groups) a group keeps its size, because one group holds the whole
model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rla.config.sections import LaunchConfig
from rla.errors import UserError

Resources = Mapping[str, float]  # of one node: `CPU`, `GPU`


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Workers that train together."""

    workers: int
    cpus: int  # per worker
    gpus: int
    replicas: int = 1  # groups that each hold the whole model
    # the share of each GPU that Ray reserves: all of it, or less if sleeping engines hold the rest
    gpu_share: float = 1.0

    @property
    def each(self) -> str:
        """The resources of one worker in words, for messages."""
        return f"{self.cpus} CPU{'s' * (self.cpus > 1)}" + (" and 1 GPU" if self.gpus else "")


def first_crew(config: LaunchConfig, nodes: Sequence[Resources]) -> Crew:
    """The workers that training starts with. Raises UserError if the cluster has too few resources for them."""
    wanted = config.own
    any_gpu = any(node.get("GPU", 0) >= 1 for node in nodes)
    gpus = int(any_gpu) if wanted.gpus == "auto" else wanted.gpus
    crew = Crew(workers=wanted.workers, cpus=wanted.cpus, gpus=gpus, replicas=config.replicas)
    room = rooms(crew, nodes)
    if not any(room):
        has = "; ".join(f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes)
        lower = "launch.own.cpus" if not gpus else "launch.own.cpus or launch.own.gpus"
        raise UserError(
            f"launch.own: each worker needs {crew.each}, and no node of the cluster has that (they have {has}); "
            f"lower {lower}, or add nodes"
        )
    if wanted.workers > sum(room):
        raise UserError(
            f"launch.own.workers: {wanted.workers} workers of {crew.each} each, and the cluster has room for "
            f"{sum(room)}; lower it to {sum(room)}, or add nodes"
        )
    workers = wanted.workers or (sum(room) if gpus else sum(map(bool, room)))
    if workers < wanted.fewest:
        raise UserError(
            f"launch.own.fewest: {wanted.fewest} workers of {crew.each} each, and the cluster has room for {workers}; "
            "lower it, or add nodes"
        )
    if workers % config.replicas:
        raise UserError(
            f"launch.replicas is {config.replicas}, with {workers} workers on the cluster; it must divide their "
            "number: set launch.own.workers"
        )
    return replace(crew, workers=workers)


def crew_of_rest(crew: Crew, config: LaunchConfig, nodes: Sequence[Resources]) -> Crew:
    """The crew with as many workers as still have room. Raises UserError if they are too few to go on."""
    left = min(crew.workers, sum(rooms(crew, nodes)))
    group = crew.workers // crew.replicas if crew.replicas > 1 else 1
    workers = left // group * group
    if not workers or workers < config.own.fewest:
        least = f"{group} of a group (launch.replicas)" if group > config.own.fewest else f"{config.own.fewest}"
        raise UserError(
            f"launch.training ray: the rest of the cluster has room for {left} workers of {crew.each} each, fewer "
            f"than {least}; add nodes and repeat the call, which continues from the last saved update"
        )
    groups = workers // group if crew.replicas > 1 else 1
    return replace(crew, workers=workers, replicas=groups)


def living_resources(ray: Any) -> list[Resources]:
    """The resources of each node that is alive."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def rooms(crew: Crew, nodes: Sequence[Resources]) -> list[int]:
    """How many workers each node has room for, if it does no other work."""
    found = []
    for node in nodes:
        shares = [node.get("CPU", 0) // crew.cpus]
        shares += [node.get("GPU", 0) // crew.gpus] if crew.gpus else []
        found.append(int(min(shares)))
    return found
