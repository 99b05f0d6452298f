"""`bench-kept`: the wall time of one iteration with an engine for every stage, and with engines kept by Ray.

    python -m ray_tests.bench.bench_kept [--backend transformers] [--set key=value]

The small pipeline (`params.yaml`) on its untrained models, every stage a process of its own , on
copies of one run folder, the two ways in turn stage by stage, so that both meet the same load of the machine. The
cluster has one node, and its engine has been started, and asked once, before: a run pays that once, and it is printed
beside. CPU seconds stand beside the wall time, which other work on the machine lengthens; with Ray they are those of
the stage and of all processes of the cluster.
"""

from __future__ import annotations

import argparse
import os
import resource as system
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from ray_tests.cluster.patience import node_words, patience
from rla.report.tables import LOOP
from rla.store.layout import resource
from rla.store.reading import read_rows

STAGES = (*LOOP, "evaluate")
ENGINE_STAGES = ("rollout", "score-steps", "evaluate")
WARM_UP = ("--set", "evaluation.tasks=1", "--set", "evaluation.rollouts_per_task=1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Seconds of one call or of several."""

    wall: float
    cpu: float

    def __add__(self, other: Spent) -> Spent:
        return Spent(wall=self.wall + other.wall, cpu=self.cpu + other.cpu)


NOTHING = Spent(wall=0.0, cpu=0.0)


class Bench:
    """Run folders `own` and `kept`; calls of the latter use the cluster."""

    def __init__(self, folder: Path, *, backend: str, address: str, overrides: list[str]) -> None:
        self.folder = folder
        self.options = ["--params", str(resource("params.yaml"))]
        for text in overrides:
            self.options += ["--set", text]
        ray = ("backend=ray", f"own.engine={backend}", f"own.address={address}", "own.replicas=1", "own.sleep=false")
        self.ways = {
            "own": ["--set", f"generator.backend={backend}"],
            "kept": [word for text in ray for word in ("--set", f"generator.{text}")],
        }

    def stage(self, name: str, run: str, *more: str, iteration: int = 1) -> Spent:
        """Seconds of one call, those of the cluster meanwhile included."""
        iterations = () if name in ("make-tasks", "init-model") else ("--iteration", str(iteration))
        words = [name, *self.options, *self.ways[run], "--run", run, *iterations, *more]
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), environment.get("PYTHONPATH", "")])
        started, cpu = time.perf_counter(), self.cpu(run)
        done = subprocess.run(
            [sys.executable, "-m", "rla", *words], cwd=self.folder, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"rla {' '.join(words)}:\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}")
        return Spent(wall=time.perf_counter() - started, cpu=self.cpu(run) - cpu)

    def cpu(self, run: str) -> float:
        """Of all calls so far, and of the cluster where they use it."""
        ended = system.getrusage(system.RUSAGE_CHILDREN)
        total = ended.ru_utime + ended.ru_stime
        for process in psutil.Process().children(recursive=True) if run == "kept" else []:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total

    def iteration(self) -> dict[str, dict[str, Spent]]:
        """Seconds by way and stage; which way goes first changes from stage to stage."""
        seconds: dict[str, dict[str, Spent]] = {"own": {}, "kept": {}}
        for index, name in enumerate(STAGES):
            for run in sorted(seconds, reverse=bool(index % 2)):
                seconds[run][name] = self.stage(name, run)
        return seconds


def prepare(bench: Bench) -> None:
    """Two equal run folders with pools and untrained models at iteration 0."""
    for name in ("make-tasks", "init-model"):
        bench.stage(name, "own")
    for model in ("policy", "rm"):
        shutil.copytree(bench.folder / "own/init" / model, bench.folder / "own/0" / model)
    shutil.copytree(bench.folder / "own", bench.folder / "kept")


def same_tokens(folder: Path) -> str:
    """How many rows of the two ways' shards differ in what was said; log-probabilities may differ in rounding."""
    found = []
    for part, kind in (("1/trajectories", "trajectories"), ("1/scores", "scores")):
        own, kept = (list(map(said, read_rows(folder / run / part, kind))) for run in ("own", "kept"))
        found.append(f"{part}: {sum(a != b for a, b in zip(own, kept, strict=True))} of {len(own)}")
    return ", ".join(found)


def said(value: object) -> object:
    """A row without its log-probabilities."""
    if isinstance(value, Mapping):
        return {key: said(item) for key, item in value.items() if "logprob" not in key}
    return [said(item) for item in value] if isinstance(value, list) else value


def report(own: Mapping[str, Spent], kept: Mapping[str, Spent]) -> None:
    print(f"{'stage':<18}{'engine a stage':>16}{'kept':>12}{'CPU, engine a stage':>22}{'kept':>12}")
    for name in STAGES:
        line(name, own[name], kept[name])
    for title, names in (("iteration", STAGES), ("engine stages", ENGINE_STAGES)):
        sums = [sum((times[name] for name in names), NOTHING) for times in (own, kept)]
        line(title, *sums)
        less = [1 - getattr(sums[1], kind) / getattr(sums[0], kind) for kind in ("wall", "cpu")]
        print(f"{'':<18}{less[0]:>23.0%} less{less[1]:>29.0%} less")


def line(title: str, own: Spent, kept: Spent) -> None:
    print(f"{title:<18}{own.wall:>14.1f} s{kept.wall:>10.1f} s{own.cpu:>20.1f} s{kept.cpu:>10.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=("transformers", "vllm"), default="transformers")
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    from ray.cluster_utils import Cluster

    with patience():
        cluster = Cluster(initialize_head=True, connect=False, head_node_args={**node_words(), "num_cpus": 2})
    overrides = ["launch.threads=1", *given.set]
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), backend=given.backend, address=str(cluster.address), overrides=overrides)
        prepare(bench)
        first = bench.stage("evaluate", "kept", *WARM_UP, iteration=0)
        seconds = bench.iteration()
        print(f"{given.backend}, one iteration of the small pipeline {' '.join(given.set)}")
        report(seconds["own"], seconds["kept"])
        print(f"start of the engine on the cluster and its first episode: {first.wall:.1f} s, once a run")
        print(f"rows whose tokens differ between the two: {same_tokens(bench.folder)}")
    cluster.shutdown()


if __name__ == "__main__":
    main()
