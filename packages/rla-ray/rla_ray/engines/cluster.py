"""A Ray cluster and the engines on it.

Engines are detached actors with names, so they outlive the stage that started them and the next stage finds them. The
name holds a fingerprint of the code, so a stage never uses an engine that runs other code.

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
CALLS = 4096  # concurrent calls of an engine: each stage that uses it keeps one poll open
# The share of a GPU that an engine reserves: more than half, so that no two share one. A training worker reserves the
# rest, and uses the whole GPU while the engine sleeps.
ENGINE_SHARE = 0.6
ANSWER = 60.0  # seconds within which a live engine reports its state, even under load
AT_ONCE = 5.0  # seconds within which an idle engine does


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineActorRef:
    """An engine's name and its actor's handle."""

    name: str
    handle: Any


def _engine_stem(config: GeneratorConfig) -> str:
    """The prefix of the names of engines with this code and these parameters."""
    return f"{PREFIX}{code_digest()[:12]}-{config.engine_name}-{config.tensor_parallel}-"


def wanted_count(nodes: Sequence[Mapping[str, float]], config: GeneratorConfig) -> int:
    """How many engines to run on nodes with these resources. Raises UserError if no node has room for one."""
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


def _living_nodes(ray: Any) -> list[dict[str, Any]]:
    """The nodes that are alive, in a stable order."""
    return sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: str(node["NodeID"]))


def stood_engines(ray: Any, config: GeneratorConfig) -> list[EngineActorRef]:
    """The engines of these parameters: those that already run, and the rest newly started.

    With GPUs, Ray chooses the nodes, and idle engines of other parameters end if they hold GPUs that are needed.
    Without GPUs, engines are assigned to the nodes in turn. If a node dies, its engine restarts on another node that
    has room. Engines that respond are used before engines that still wait for room.
    """
    from rla_ray.engines.actor import EngineActor

    nodes = _living_nodes(ray)
    count, stem = wanted_count([node["Resources"] for node in nodes], config), _engine_stem(config)
    gpus = config.tensor_parallel if any(node["Resources"].get("GPU") for node in nodes) else 0
    known = known_engines(ray)
    found = answering(ray, [engine for engine in known if engine.name.startswith(stem)])[:count]
    missing = count - len(found)
    if gpus and ray.available_resources().get("GPU", 0) < missing * gpus:
        _end_unused(ray, [engine for engine in known if not engine.name.startswith(stem)])
    taken, make = {engine.name for engine in found}, ray.remote(EngineActor)
    names = [f"{stem}{number}" for number in range(count)]
    for number, name in enumerate([name for name in names if name not in taken][:missing], start=len(found)):
        node = str(nodes[number % len(nodes)]["NodeID"])
        where = {"scheduling_strategy": "SPREAD"} if gpus else _rather_on(node)
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


def _rather_on(node: str) -> dict[str, Any]:
    """Options for an actor that prefers `node`, and runs on any other once that node is dead.

    Ray's soft node affinity does this only for actors that reserve a CPU. Without one, Ray 2.60 may choose another node
    even though this one is alive.
    """
    label = "ray.io/node-id"
    return {"label_selector": {label: node}, "fallback_strategy": [{"label_selector": {label: f"!{node}"}}]}


def answering(ray: Any, engines: Sequence[EngineActorRef], *, timeout: float = AT_ONCE) -> list[EngineActorRef]:
    """The engines that answer within `timeout` seconds: they are alive and hold their resources."""
    states = engine_states(ray, engines, timeout=timeout)
    return [engine for engine in engines if states[engine.name] is not None]


def _end_unused(ray: Any, engines: Sequence[EngineActorRef]) -> None:
    """End the engines that no stage uses."""
    states = engine_states(ray, engines, timeout=AT_ONCE)
    for engine in engines:
        state = states[engine.name]
        if state is not None and not state["stages"]:
            ray.kill(engine.handle)


def known_engines(ray: Any) -> list[EngineActorRef]:
    """All engines on the cluster, including those that run other code."""
    listed = ray.util.list_named_actors(all_namespaces=True)
    names = sorted(row["name"] for row in listed if row["namespace"] == NAMESPACE and row["name"].startswith(PREFIX))
    found = []
    for name in names:
        try:
            found.append(EngineActorRef(name=name, handle=ray.get_actor(name, namespace=NAMESPACE)))
        except ValueError:
            continue  # it has ended since it was listed
    return found


def engine_states(
    ray: Any, engines: Sequence[EngineActorRef], *, timeout: float = ANSWER
) -> dict[str, dict[str, Any] | None]:
    """The state that each engine reports, by name; None if it does not answer within `timeout` seconds."""
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
    """End all engines of the cluster, even those in use. Returns their names."""
    found = known_engines(ray)
    for engine in found:
        ray.kill(engine.handle)
    return [engine.name for engine in found]


def worker_share(ray: Any, config: GeneratorConfig) -> float:
    """The share of a GPU that each training worker reserves. If there is a sleeping engine on each GPU, it is the rest
    of the GPU. Otherwise it is a whole GPU, and the engines end. Raises UserError if `generator.own.sleep` is false.
    """
    known = known_engines(ray)
    if config.backend != "ray" or not known:
        return 1.0
    if not config.own.sleep:
        raise UserError(
            "generator.own.sleep: false, and the workers of launch.training: ray need the GPUs of the engines; set it "
            "to true, or train elsewhere (launch.training)"
        )
    gpus = int(sum(node["Resources"].get("GPU", 0) for node in _living_nodes(ray)))
    if config.tensor_parallel == 1 and len(answering(ray, known, timeout=ANSWER)) == len(known) == gpus:
        return round(1 - ENGINE_SHARE, 4)
    ended_engines(ray)
    return 1.0


def engines_asleep(config: GeneratorConfig) -> None:
    """Make all engines release their memory before something else uses it.

    Raises UserError if a stage uses one of them for longer than `generator.own.patience`.
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
            except GetTimeoutError:  # it is starting, or waits for room
                if engine.name in _holding_memory(ray):
                    left.append(engine)
            except RayError:
                continue  # a lost engine holds no memory
        awake = left
        if awake and time.monotonic() > until:
            raise UserError(
                f"generator.backend ray: {awake[0].name} is in use by another stage, and training needs its memory; "
                "wait for that stage, or set generator.own.sleep: false"
            )
        time.sleep(1.0 if awake else 0.0)


def _holding_memory(ray: Any) -> set[str]:
    """Names of the engines that have a process; the others still wait for room."""
    from ray._private.state import actors

    return {str(actor["Name"]) for actor in actors().values() if actor["State"] == "ALIVE"}
