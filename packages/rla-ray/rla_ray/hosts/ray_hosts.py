"""Starting actors with environments on the nodes of a Ray cluster, and the links to them.

The stage's process owns the actors, so Ray ends them with it, however it ends. If an actor's process or node is lost,
Ray restarts the actor on a node that has room.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rla.config import Config, resolved
from rla.envs.fork_server import PoolMessage
from rla.envs.pool import Environments, Lost
from rla.errors import UserError
from rla_ray.code_digest import code_digest
from rla_ray.connection import address_of, connected, first_line
from rla_ray.hosts.spreading import HostPool

OPEN_CALLS = 65536  # concurrent calls of an actor: each episode has at most one
NEVER = "creation task"  # part of Ray's message for an actor that cannot be made


@contextmanager
def cluster_environments(config: Config, *, note: Callable[[str], None]) -> Iterator[Environments]:
    """A factory of environments that run in actors. On exit the actors end, and `note` reports replacements.

    Raises UserError.
    """
    with HostPool(
        _cluster_hosts(config),
        places=config.rollout.concurrency,
        deadline_s=config.pool.step_deadline_s,
        patience_s=config.pool.own.patience,
    ) as pool:
        yield Environments(pool.environment, pool.close, lambda: pool.figures, pool.prepared)
    if pool.lost:
        note(f"{pool.lost} actors with environments were lost, and {pool.replaced} times an episode went on elsewhere")


def _cluster_hosts(config: Config) -> list[RayHost]:
    """Start actors on the nodes of the cluster. Raises UserError if there is no cluster, or no room."""
    ray = connected(address_of(config.pool.own, config.generator), what="pool.backend ray")
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from rla_ray.hosts.host import EnvironmentHost

    cores = {str(node["NodeID"]): int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]}
    make = ray.remote(EnvironmentHost)
    hosts = []
    for node, count in placed_actors(cores, config.pool.own, most=config.rollout.concurrency):
        options = make.options(
            num_cpus=count,
            max_restarts=-1,
            max_concurrency=OPEN_CALLS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=True),
        )
        handle = options.remote(resolved(config), cores=count, folder=os.getcwd(), code=code_digest())
        hosts.append(RayHost(ray=ray, handle=handle, cores=count))
    return hosts


def placed_actors(cores: Mapping[str, int], pool: Any, *, most: int) -> list[tuple[str, int]]:
    """Node and number of cores of each actor: one actor per `pool.own.cpus` cores, over the nodes in turn, `most` at
    most.

    `cores` maps nodes to their cores; `pool` is the section `pool.own`. Raises UserError if no node has enough cores.
    """
    each = {node: pool.cpus or count for node, count in cores.items() if count}
    room = {node: cores[node] // count for node, count in each.items()}
    rounds = range(max(room.values(), default=0))
    found = [(node, each[node]) for turn in rounds for node in sorted(room) if turn < room[node]]
    if not found:
        raise UserError(
            f"pool.own.cpus: {pool.cpus or 'all'} cores for each actor with environments, and the cluster's nodes have "
            f"{sorted(cores.values())}; lower it, or start Ray with more (`ray start --num-cpus`)"
        )
    return found[: min(pool.actors or len(found), most)]


async def _said_or_lost(call: Any) -> Any:
    """Await an actor's answer. Raises Lost if Ray cannot reach the actor, and the actor's own exceptions."""
    from ray.exceptions import RayError, RayTaskError

    try:
        return await call
    except RayTaskError:
        raise
    except RayError as error:
        raise Lost("was lost with its node") from error


@dataclass(slots=True, eq=False)
class RayHost:
    """A `rla_ray.hosts.spreading.HostLink` to a Ray actor."""

    ray: Any
    handle: Any
    cores: int

    async def begin(self) -> PoolMessage:
        """Raises UserError if the actor cannot be made on its node, for example because rla is not installed there."""
        from ray.exceptions import RayTaskError

        try:
            answer: PoolMessage = await _said_or_lost(self.handle.begin.remote())
        except RayTaskError as error:
            raise UserError(f"pool.backend ray: an actor failed: {first_line(error.cause)}") from error
        except Lost as lost:
            if NEVER not in str(lost.__cause__):
                raise
            said = str(lost.__cause__).strip().splitlines()[-1]
            raise UserError(
                f"pool.backend ray: an actor with environments cannot be made ({said}); install the same rla on every "
                "node"
            ) from lost
        return answer

    async def answer(self, episode: int, message: PoolMessage) -> PoolMessage:
        """The answer to a reset or a step. Raises Lost."""
        answer: PoolMessage = await _said_or_lost(self.handle.answer.remote(episode, message))
        return answer

    async def ping(self) -> None:
        """Returns if the actor is alive. Raises Lost."""
        await _said_or_lost(self.handle.ping.remote())

    async def close(self) -> Sequence[Mapping[str, float]]:
        """End everything that the actor holds. Returns its measurements. Raises Lost."""
        figures: Sequence[Mapping[str, float]] = await _said_or_lost(self.handle.close.remote())
        return figures

    def end(self, episode: int) -> None:
        """Tell the actor that the episode is over, without waiting for it."""
        self.handle.end.remote(episode)

    def restart(self) -> None:
        """Kill the actor; Ray restarts it."""
        self.ray.kill(self.handle, no_restart=False)

    def kill(self) -> None:
        """Kill the actor for good."""
        self.ray.kill(self.handle)
