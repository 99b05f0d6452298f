"""`make -f tests/bench/Makefile bench-ray`: what engines on a cluster cost, on one machine with logical nodes.

start      seconds until a process is connected to a running cluster (`ray.init`) and until a first task is done, beside
           a fresh Python and a light stage
scaling    tokens a second with 1, 2 and 4 engines and 512 episodes in flight, against as many times one engine's.
           The engine is a clock: SLOTS requests at once, each of TOKENS tokens and `--latency` seconds, so that cores
           do not limit it. The stage's own processor time for a request stands beside. Four engines with 0.25 s answer
           2,048 requests a second at most; where other work has the cores, a longer latency leaves room for them
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
from statistics import median
from typing import Any

from rla_ray.connection import NAMESPACE, connected
from rla_ray.engines.actor import EngineActor
from rla_ray.engines.cluster import EngineActorRef
from rla_ray.engines.kept_engines import Wanted
from rla_ray.engines.pool import RayGenerator
from rla_ray.engines.seats import Seats

from ray_tests.cluster.patience import node_words, patience
from rla.config.sections import GeneratorConfig
from rla.llm.base import Completion, FinishReason, Request
from tests.integration.pipelines import PARAMS
from tests.unit.training.builders import tiny_model

SLOTS, TOKENS = 128, 32
EPISODES = 512
TURNS = 3
PROMPT = list(range(1, 257))  # token ids


class Clock:
    """An engine that takes its time and no processor."""

    def __init__(self, latency: float) -> None:
        self.context, self._latency = 4096, latency
        self._slots = asyncio.Semaphore(SLOTS)

    async def generate(self, request: Request) -> list[Completion]:
        async with self._slots:
            await asyncio.sleep(self._latency)
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

    def __init__(self, latency: float) -> None:
        super().__init__()
        self._seats = Seats(lambda wanted: Clock(latency))


def measured_rate(ray: Any, engines: int, model: Path, *, latency: float, steps: int) -> tuple[float, float]:
    """Requests a second, and milliseconds of this process's processor time a request."""
    make = ray.remote(ClockActor).options(num_cpus=0, max_concurrency=4096, namespace=NAMESPACE)
    handles = [make.remote(latency) for _ in range(engines)]
    ray.get([handle.state.remote() for handle in handles])  # one that starts later has no sessions in the first step
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
        await play(4)  # until every engine has opened its lease
        started, spent = time.perf_counter(), time.process_time()
        await play(steps)
        seconds, spent = time.perf_counter() - started, time.process_time() - spent
        pool.close()
        return EPISODES * steps / seconds, 1000 * spent / (EPISODES * steps)

    found = asyncio.run(main())
    for handle in handles:
        ray.kill(handle)
    return found


STARTED = """
import sys, time
begun = time.perf_counter()
from rla_ray.connection import connected
ray = connected(sys.argv[1])
there = time.perf_counter()
ray.get(ray.remote(lambda: 0).remote())  # a class would be an actor
print(f"{there - begun:.2f} {time.perf_counter() - there:.2f}")
"""


def start_line(address: str) -> str:
    """Seconds until a stage's process is connected, and of its first task."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    plain = time.perf_counter() - begun
    done = subprocess.run([sys.executable, "-c", STARTED, address], check=False, capture_output=True, text=True)
    if done.returncode:
        return f"no process could join the cluster: {done.stderr.strip().splitlines()[-1:]}"
    joined, task = map(float, done.stdout.split())
    return f"joining the cluster {joined:.2f} s, a first task {task:.2f} s; a fresh Python {plain:.2f} s"


def stages_line(folder: Path) -> str:
    """Seconds of `make-tasks`."""
    (folder / "params.yaml").write_text(PARAMS)
    spent = []
    for number in range(TURNS + 1):
        begun = time.perf_counter()
        command = [sys.executable, "-m", "rla", "make-tasks", "--run", str(number)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        spent.append(time.perf_counter() - begun)
    return f"a light stage: {median(spent[1:]):.2f} s"  # the first one reads files that no cache has


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--latency", type=float, default=0.5, help="seconds of a request in an engine")
    parser.add_argument("--steps", type=int, default=12, help="of an episode")
    given = parser.parse_args()
    counts = given.engines
    from ray.cluster_utils import Cluster

    begun = time.perf_counter()
    with patience():
        cluster = Cluster(initialize_head=True, connect=False, head_node_args=node_words())
        for _ in range(max(counts) - 1):
            cluster.add_node(**node_words())
    print(f"a cluster of {max(counts)} nodes: {time.perf_counter() - begun:.1f} s")
    print(start_line(str(cluster.address)), flush=True)
    ray = connected(str(cluster.address))
    with tempfile.TemporaryDirectory() as folder:
        print(stages_line(Path(folder)), flush=True)
        model = tiny_model(Path(folder) / "model", seed=0)
        first = 0.0
        for engines in counts:
            rate, cost = measured_rate(ray, engines, model, latency=given.latency, steps=given.steps)
            first = first or rate / engines
            print(
                f"{engines} engines: {rate:,.0f} requests/s, {rate * TOKENS:,.0f} tokens/s, "
                f"{rate / (first * engines):.3f} of linear, {rate * given.latency / (engines * SLOTS):.3f} of what the "
                f"clocks allow, {cost:.2f} ms a request in the stage",
                flush=True,
            )
    ray.shutdown()  # a node to which somebody is connected does not end
    cluster.shutdown()


if __name__ == "__main__":
    main()
