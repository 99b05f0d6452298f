"""A Ray cluster and the engines that stand on it.

Engines are detached actors with names, so that they outlive the stage that started them and the next stage finds them.
The name holds a fingerprint of the code: an engine of other code is not asked.

    rla-<fingerprint>-<backend>-<GPUs of each>-<number>
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla_ray.code_digest import code_digest
from rla_ray.connection import NAMESPACE, connected

PREFIX = "rla-"
CALLS = 4096  # that an engine may have open at once: stages, each with one that waits for replies
# That an engine of one GPU reserves of it, more than half, so that each has its own. A training worker reserves the
# rest, and uses all of it while the engine sleeps.
ENGINE_SHARE = 0.6
ANSWER = 60.0  # seconds in which an engine that lives says how it is, whatever it does
AT_ONCE = 5.0  # seconds in which one that has nothing heavy to do says it


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineActorRef:
    """An engine's name and its actor's handle."""

    name: str
    handle: Any


def engine_stem(config: GeneratorConfig) -> str:
    """What the names of engines of this code and these parameters begin with."""
    return f"{PREFIX}{code_digest()[:12]}-{config.engine_name}-{config.tensor_parallel}-"


def wanted_count(nodes: Sequence[Mapping[str, float]], config: GeneratorConfig) -> int:
    """How many engines a cluster is to have whose nodes have these resources. Raises UserError where none fits."""
    gpus, each = [int(node.get("GPU", 0)) for node in nodes], config.tensor_parallel
    most = sum(count // each for count in gpus) if any(gpus) else len(nodes)
    if any(gpus) and not most:
        raise UserError(
            f"generator.tensor_parallel: {each} GPUs of one node hold one model, and the nodes of the cluster have "
            f"{', '.join(map(str, sorted(gpus)))}; lower it, or add nodes"
        )
    if any(gpus) and config.own.replicas > most:
        raise UserError(
            f"generator.own.replicas: {config.own.replicas} engines of {each} GPU{'s' * (each > 1)} each, and the "
            f"cluster has room for {most}; lower it to {most}"
        )
    return config.own.replicas or max(most, 1)


def living_nodes(ray: Any) -> list[dict[str, Any]]:
    """The nodes, in an order that stays."""
    return sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: str(node["NodeID"]))


def stood_engines(ray: Any, config: GeneratorConfig) -> list[EngineActorRef]:
    """The engines of these parameters: those that stand already, and the rest started.

    With GPUs, Ray chooses where an engine stands, and engines of other parameters that nobody uses end where they hold
    the GPUs that are wanted. Without, engines are spread over the nodes in turn. One whose node dies starts again on
    another, where there is room; engines that live are asked before those that wait for room.
    """
    from rla_ray.engines.actor import EngineActor

    nodes = living_nodes(ray)
    count, stem = wanted_count([node["Resources"] for node in nodes], config), engine_stem(config)
    gpus = config.tensor_parallel if any(node["Resources"].get("GPU") for node in nodes) else 0
    known = known_engines(ray)
    found = answering(ray, [engine for engine in known if engine.name.startswith(stem)])[:count]
    missing = count - len(found)
    if gpus and ray.available_resources().get("GPU", 0) < missing * gpus:
        end_unused(ray, [engine for engine in known if not engine.name.startswith(stem)])
    taken, make = {engine.name for engine in found}, ray.remote(EngineActor)
    names = [f"{stem}{number}" for number in range(count)]
    for number, name in enumerate([name for name in names if name not in taken][:missing], start=len(found)):
        node = str(nodes[number % len(nodes)]["NodeID"])
        where = {"scheduling_strategy": "SPREAD"} if gpus else rather_on(node)
        options = make.options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            num_cpus=0,
            num_gpus=ENGINE_SHARE if gpus == 1 else gpus,
            max_restarts=-1,
            max_concurrency=CALLS,
            **where,
        )
        found.append(EngineActorRef(name=name, handle=options.remote()))
    return found


def rather_on(node: str) -> dict[str, Any]:
    """Options of an actor that stands on this node while it lives, and on any other afterwards.

    Ray's soft node affinity does the same for actors that reserve a core. Where one reserves none, Ray 2.60 may choose
    another node although this one lives.
    """
    label = "ray.io/node-id"
    return {"label_selector": {label: node}, "fallback_strategy": [{"label_selector": {label: f"!{node}"}}]}


def answering(ray: Any, engines: Sequence[EngineActorRef], *, timeout: float = AT_ONCE) -> list[EngineActorRef]:
    """Those that answer within `timeout` seconds: they live, and hold what they need."""
    states = engine_states(ray, engines, timeout=timeout)
    return [engine for engine in engines if states[engine.name] is not None]


def end_unused(ray: Any, engines: Sequence[EngineActorRef]) -> None:
    """End those that no stage uses."""
    states = engine_states(ray, engines, timeout=AT_ONCE)
    for engine in engines:
        state = states[engine.name]
        if state is not None and not state["stages"]:
            ray.kill(engine.handle)


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


def engine_states(
    ray: Any, engines: Sequence[EngineActorRef], *, timeout: float = ANSWER
) -> dict[str, dict[str, Any] | None]:
    """What each engine says of itself, None of one that does not answer within `timeout` seconds."""
    from ray.exceptions import RayError

    asked = {engine.name: engine.handle.state.remote() for engine in engines}
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=timeout) if asked else None
    found: dict[str, dict[str, Any] | None] = {}
    for name, ref in asked.items():
        try:
            found[name] = ray.get(ref, timeout=0)
        except RayError:
            found[name] = None
    return found


def ended_engines(ray: Any) -> list[str]:
    """End all engines of the cluster, whoever uses them. Their names."""
    found = known_engines(ray)
    for engine in found:
        ray.kill(engine.handle)
    return [engine.name for engine in found]


def worker_share(ray: Any, config: GeneratorConfig) -> float:
    """What each training worker may reserve of a GPU: what the engines leave where each GPU has one, which sleeps; else
    a whole GPU, and the engines end. Raises UserError where they may not sleep.
    """
    known = known_engines(ray)
    if config.backend != "ray" or not known:
        return 1.0
    if not config.own.sleep:
        raise UserError(
            "generator.own.sleep: false, and the workers of launch.training: ray need the GPUs of the engines; set it "
            "to true, or train elsewhere (launch.training)"
        )
    gpus = int(sum(node["Resources"].get("GPU", 0) for node in living_nodes(ray)))
    if config.tensor_parallel == 1 and len(answering(ray, known, timeout=ANSWER)) == len(known) == gpus:
        return round(1 - ENGINE_SHARE, 4)
    ended_engines(ray)
    return 1.0


def engines_asleep(config: GeneratorConfig) -> None:
    """Have all engines that stand give their memory back, before something else takes it.

    Raises UserError where a stage uses one for longer than `generator.own.patience`.
    """
    if config.backend != "ray" or not config.own.sleep:
        return
    from ray.exceptions import GetTimeoutError, RayError

    ray = connected(config.own.address)
    until = time.monotonic() + config.own.patience
    awake = known_engines(ray)
    while awake:
        calls = {engine.name: engine.handle.sleep.remote(len(awake)) for engine in awake}
        ray.wait(list(calls.values()), num_returns=len(calls), timeout=ANSWER)
        left = []
        for engine in awake:
            try:
                if not ray.get(calls[engine.name], timeout=0):
                    left.append(engine)
            except GetTimeoutError:  # it waits for room, or it is starting
                if engine.name in holding_memory(ray):
                    left.append(engine)
            except RayError:
                continue  # an engine that is lost holds nothing
        awake = left
        if awake and time.monotonic() > until:
            raise UserError(
                f"generator.backend ray: {awake[0].name} is in use by another stage, and training needs its memory; "
                "wait for that stage, or set generator.own.sleep: false"
            )
        time.sleep(1.0 if awake else 0.0)


def holding_memory(ray: Any) -> set[str]:
    """Names of engines that have a process: the others wait for room."""
    from ray._private.state import actors

    return {str(actor["Name"]) for actor in actors().values() if actor["State"] == "ALIVE"}
