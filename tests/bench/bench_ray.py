"""`make bench-ray`: what engines on a cluster cost, on one machine with logical nodes.

start      seconds of `ray.init` on a running cluster, of a first task and of a first engine; beside a fresh Python
scaling    tokens a second with 1, 2 and 4 engines and 512 episodes in flight, against as many times one engine's.
           The engine is a clock: SLOTS requests at once, each of TOKENS tokens and LATENCY seconds, so that cores do
           not limit it. The stage's own processor time for a request stands beside
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from rla.config.sections import GeneratorConfig
from rla.llm.base import Completion, FinishReason, Request
from rla.llm.kept_engines import Wanted
from rla.llm.ray_actor import EngineActor
from rla.llm.ray_cluster import EngineActorRef
from rla.llm.ray_pool import RayGenerator
from rla.llm.seats import Seats
from rla.processes.ray_connection import NAMESPACE, connected
from tests.unit.training.builders import tiny_model

SLOTS, TOKENS, LATENCY = 128, 32, 0.5
EPISODES, STEPS = 512, 12
PROMPT = list(range(1, 257))  # token ids


class Clock:
    """An engine that takes its time and no processor."""

    def __init__(self) -> None:
        self.context = 4096
        self._slots = asyncio.Semaphore(SLOTS)

    async def generate(self, request: Request) -> list[Completion]:
        async with self._slots:
            await asyncio.sleep(LATENCY)
        tokens = [1] * TOKENS
        return [
            Completion(
                token_ids=tokens, logprobs=[-1.0] * TOKENS, allowed=[[]] * TOKENS, finish_reason=FinishReason.STOP
            )
        ]

    async def reload(self, model: str, *, stop_ids: Collection[int]) -> None: ...

    def forget(self) -> None: ...

    def release(self, session: str) -> None: ...

    def close(self) -> None: ...


class ClockActor(EngineActor):
    """The actor that stages ask, around a clock."""

    def __init__(self) -> None:
        super().__init__()
        self._seats = Seats(lambda wanted: Clock())


def measured_rate(ray: Any, engines: int, model: Path) -> tuple[float, float]:
    """Tokens a second, and milliseconds of this process's processor time a request."""
    make = ray.remote(ClockActor)
    handles = [make.options(num_cpus=0, max_concurrency=4096, namespace=NAMESPACE).remote() for _ in range(engines)]
    refs = [EngineActorRef(name=str(number), handle=handle) for number, handle in enumerate(handles)]
    wanted = Wanted(model=str(model), config=GeneratorConfig(context=4096), stop_ids=(0,), seed=0)
    pool = RayGenerator(ray, refs, wanted=wanted, patience=120.0)

    async def episode(number: int, steps: int) -> None:
        for _ in range(steps):
            await pool.generate(
                Request(prompt_ids=PROMPT, max_tokens=TOKENS, temperature=1.0, seed=number, session=f"s{number}")
            )
        pool.release(f"s{number}")

    async def play(steps: int) -> None:
        await asyncio.gather(*(episode(number, steps) for number in range(EPISODES)))

    async def main() -> tuple[float, float]:
        await play(1)
        started, spent = time.perf_counter(), time.process_time()
        await play(STEPS)
        seconds, spent = time.perf_counter() - started, time.process_time() - spent
        pool.close()
        return EPISODES * STEPS * TOKENS / seconds, 1000 * spent / (EPISODES * STEPS)

    found = asyncio.run(main())
    for handle in handles:
        ray.kill(handle)
    return found


STARTED = """
import sys, time
begun = time.perf_counter()
from rla.processes.ray_connection import connected
ray = connected(sys.argv[1])
there = time.perf_counter()
ray.get(ray.remote(int).remote())
print(f"{there - begun:.2f} {time.perf_counter() - there:.2f}")
"""


def start_line(address: str) -> str:
    """Seconds until a stage's process is connected, and of its first task."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    plain = time.perf_counter() - begun
    said = subprocess.run([sys.executable, "-c", STARTED, address], check=True, capture_output=True, text=True).stdout
    joined, task = map(float, said.split())
    return f"joining the cluster {joined:.2f} s, a first task {task:.2f} s; a fresh Python {plain:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 2, 4])
    counts = parser.parse_args().engines
    from ray.cluster_utils import Cluster

    begun = time.perf_counter()
    cluster = Cluster(initialize_head=True, connect=False, head_node_args={"num_cpus": 1})
    for _ in range(max(counts) - 1):
        cluster.add_node(num_cpus=1)
    print(f"a cluster of {max(counts)} nodes: {time.perf_counter() - begun:.1f} s")
    print(start_line(str(cluster.address)))
    ray = connected(str(cluster.address))
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model(Path(folder) / "model", seed=0)
        first = 0.0
        for engines in counts:
            rate, cost = measured_rate(ray, engines, model)
            first = first or rate / engines
            share = rate / (first * engines)
            print(
                f"{engines} engines: {rate:,.0f} tokens/s, {share:.2f} of linear, {cost:.2f} ms a request in the stage"
            )
    cluster.shutdown()


if __name__ == "__main__":
    main()
