"""A Ray cluster and the engines that stand on it.

Engines are detached actors with names, so that they outlive the stage that started them and the next stage finds them.
The name holds a fingerprint of the code: an engine of other code is not asked.

    rla-<fingerprint>-<backend>-<GPUs of each>-<number>
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.processes.prefork.handover import fingerprint
from rla.processes.ray_connection import NAMESPACE, connected

PREFIX = "rla-"
CALLS = 4096  # that an engine may have open at once: stages, each with one that waits for replies
# That an engine of one GPU reserves of it, more than half, so that each has its own. A training worker reserves the
# rest, and uses all of it while the engine sleeps.
ENGINE_SHARE = 0.6
ANSWER = 60.0  # seconds in which an engine that lives says how it is


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineActorRef:
    """An engine's name and its actor's handle."""

    name: str
    handle: Any


def engine_names(config: GeneratorConfig, count: int) -> list[str]:
    """The names of the first `count` engines that this code starts with these parameters."""
    stem = f"{PREFIX}{fingerprint({})[:12]}-{config.engine_name}-{config.tensor_parallel}"
    return [f"{stem}-{number}" for number in range(count)]


def wanted_count(ray: Any, config: GeneratorConfig) -> int:
    """How many engines the cluster is to have. Raises UserError where its GPUs are too few for one."""
    gpus = int(ray.cluster_resources().get("GPU", 0))
    each = config.tensor_parallel
    if gpus and gpus < each:
        raise UserError(
            f"generator.tensor_parallel: {each} GPUs hold one model, and the cluster has {gpus}; lower it, or add nodes"
        )
    most = gpus // each if gpus else len(living_nodes(ray))
    if gpus and config.ray.replicas > most:
        raise UserError(
            f"generator.ray.replicas: {config.ray.replicas} engines of {each} GPU{'s' * (each > 1)} each, and the "
            f"cluster has {gpus}; lower it to {most}"
        )
    return config.ray.replicas or max(most, 1)


def living_nodes(ray: Any) -> list[str]:
    """Ids of the nodes, in an order that stays."""
    return sorted(str(node["NodeID"]) for node in ray.nodes() if node["Alive"])


def stood_engines(ray: Any, config: GeneratorConfig) -> list[EngineActorRef]:
    """The engines of these parameters: those that stand already, and the rest started.

    With GPUs, Ray chooses where an engine stands. Without, engines are spread over the nodes in turn. One whose node
    dies starts again on another.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from rla.llm.ray_actor import EngineActor

    gpus = config.tensor_parallel if ray.cluster_resources().get("GPU", 0) else 0
    nodes = living_nodes(ray)
    make = ray.remote(EngineActor)
    found = []
    for number, name in enumerate(engine_names(config, wanted_count(ray, config))):
        node = nodes[number % len(nodes)]
        where = "SPREAD" if gpus else NodeAffinitySchedulingStrategy(node_id=node, soft=True)
        options = make.options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            num_gpus=ENGINE_SHARE if gpus == 1 else gpus,
            max_restarts=-1,
            max_concurrency=CALLS,
            scheduling_strategy=where,
        )
        found.append(EngineActorRef(name=name, handle=options.remote()))
    return found


def known_engines(ray: Any) -> list[EngineActorRef]:
    """All engines that stand on the cluster, those of other code too."""
    listed = ray.util.list_named_actors(all_namespaces=True)
    names = sorted(row["name"] for row in listed if row["namespace"] == NAMESPACE and row["name"].startswith(PREFIX))
    found = []
    for name in names:
        try:
            found.append(EngineActorRef(name=name, handle=ray.get_actor(name, namespace=NAMESPACE)))
        except ValueError:
            continue  # it ended since it was listed
    return found


def engine_states(ray: Any, engines: Sequence[EngineActorRef]) -> dict[str, dict[str, Any] | None]:
    """What each engine says of itself, None of one that does not answer."""
    from ray.exceptions import RayError

    asked = {engine.name: engine.handle.state.remote() for engine in engines}
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER) if asked else None
    found: dict[str, dict[str, Any] | None] = {}
    for name, ref in asked.items():
        try:
            found[name] = ray.get(ref, timeout=0)
        except RayError:
            found[name] = None
    return found


def ended_engines(ray: Any) -> list[str]:
    """End all engines of the cluster; what they held is free when this returns. Their names."""
    found = known_engines(ray)
    for engine in found:
        ray.kill(engine.handle)
    return [engine.name for engine in found]


def worker_share(ray: Any, config: GeneratorConfig, workers: int) -> float:
    """What each of `workers` training workers may reserve of a GPU: what engines leave where each GPU has one, which
    sleeps; else a whole GPU. Engines end where that is not free.
    """
    if config.backend != "ray" or not config.ray.sleep:
        return 1.0
    if config.tensor_parallel == 1 and len(known_engines(ray)) == int(ray.cluster_resources().get("GPU", 0)):
        return round(1 - ENGINE_SHARE, 4)
    if ray.available_resources().get("GPU", 0) < workers:
        ended_engines(ray)
    return 1.0


def engines_asleep(config: GeneratorConfig) -> None:
    """Have all engines that stand give their memory back, before something else takes it.

    Raises UserError where a stage uses one for longer than `generator.ray.patience`.
    """
    if config.backend != "ray" or not config.ray.sleep:
        return
    from ray.exceptions import RayError

    ray = connected(config.ray.address)
    until = time.monotonic() + config.ray.patience
    for engine in known_engines(ray):
        while True:
            try:
                if ray.get(engine.handle.sleep.remote(), timeout=ANSWER):
                    break
            except RayError:
                break  # an engine that is lost holds nothing
            if time.monotonic() > until:
                raise UserError(
                    f"generator.backend ray: {engine.name} is in use by another stage, and training needs its memory; "
                    "wait for that stage, or set generator.ray.sleep: false"
                )
            time.sleep(1.0)
