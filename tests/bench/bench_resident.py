"""`make bench-resident`: the wall time of one iteration with an engine for every stage, and with the resident engine.

    python -m tests.bench.bench_resident [--backend transformers] [--python <interpreter with vllm>] [--set key=value]

The small setting (`params.yaml`) on its untrained models, every stage a process of its own (no pre-fork server), on
copies of one run folder, the two ways in turn stage by stage, so that both meet the same load of the machine. The
resident engine has been started, and asked once, before: a run pays that once, and it is printed beside. CPU seconds
(stage and engine together) stand beside the wall time, which other work on the machine lengthens.
"""

from __future__ import annotations

import argparse
import os
import re
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

from rla.report.tables import LOOP
from rla.store.reading import read_rows
from rla.store.resources import resource

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
    """One interpreter, one setting. `engine`: the resident one's process."""

    def __init__(self, folder: Path, *, python: str, settings: list[str]) -> None:
        self.folder, self.python = folder, python
        self.engine: psutil.Process | None = None
        self.options = ["--params", str(resource("params.yaml"))]
        for text in settings:
            self.options += ["--set", text]

    def rla(self, *words: str, socket: Path | None = None) -> Spent:
        """Seconds of one call, those of the engine that it uses included."""
        environment = {key: value for key, value in os.environ.items() if key not in ("RLA_PREFORK", "RLA_ENGINE")}
        environment["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), environment.get("PYTHONPATH", "")])
        if socket is not None:
            environment["RLA_ENGINE"] = str(socket)
        started, cpu = time.perf_counter(), self.cpu()
        done = subprocess.run(
            [self.python, "-m", "rla", *words], cwd=self.folder, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"rla {' '.join(words)}:\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}")
        if words[:2] == ("serve", "start"):
            self.engine = psutil.Process(int(re.findall(r"engine server (\d+) started", done.stdout)[0]))
        return Spent(wall=time.perf_counter() - started, cpu=self.cpu() - cpu)

    def cpu(self) -> float:
        """Of all calls so far, and of the engine's processes."""
        own = system.getrusage(system.RUSAGE_CHILDREN)
        found = [] if self.engine is None else [self.engine, *self.engine.children(recursive=True)]
        times = [process.cpu_times() for process in found]
        return own.ru_utime + own.ru_stime + sum(one.user + one.system for one in times)

    def stage(self, name: str, run: str, *more: str, iteration: int = 1, socket: Path | None = None) -> Spent:
        iterations = () if name in ("make-tasks", "init-model") else ("--iteration", str(iteration))
        return self.rla(name, *self.options, "--run", run, *iterations, *more, socket=socket)

    def iteration(self, socket: Path) -> dict[str, dict[str, Spent]]:
        """Seconds by way and stage; which way goes first changes from stage to stage."""
        seconds: dict[str, dict[str, Spent]] = {"own": {}, "resident": {}}
        for index, name in enumerate(STAGES):
            for run in sorted(seconds, reverse=bool(index % 2)):
                seconds[run][name] = self.stage(name, run, socket=socket if run == "resident" else None)
        return seconds


def prepare(bench: Bench) -> None:
    """Two equal run folders with pools and untrained models at iteration 0."""
    for name in ("make-tasks", "init-model"):
        bench.stage(name, "own")
    for model in ("policy", "rm"):
        shutil.copytree(bench.folder / "own/init" / model, bench.folder / "own/0" / model)
    shutil.copytree(bench.folder / "own", bench.folder / "resident")


def differing(folder: Path) -> str:
    """How many rows of the two ways' shards differ."""
    found = []
    for part, kind in (("1/trajectories", "trajectories"), ("1/scores", "scores")):
        own, resident = (read_rows(folder / run / part, kind) for run in ("own", "resident"))
        found.append(f"{part}: {sum(a != b for a, b in zip(own, resident, strict=True))} of {len(own)}")
    return ", ".join(found)


def report(own: Mapping[str, Spent], resident: Mapping[str, Spent]) -> None:
    print(f"{'stage':<18}{'engine a stage':>16}{'resident':>12}{'CPU, engine a stage':>22}{'resident':>12}")
    for name in STAGES:
        line(name, own[name], resident[name])
    for title, names in (("iteration", STAGES), ("engine stages", ENGINE_STAGES)):
        sums = [sum((times[name] for name in names), NOTHING) for times in (own, resident)]
        line(title, *sums)
        less = [1 - getattr(sums[1], kind) / getattr(sums[0], kind) for kind in ("wall", "cpu")]
        print(f"{'':<18}{less[0]:>23.0%} less{less[1]:>29.0%} less")


def line(title: str, own: Spent, resident: Spent) -> None:
    print(f"{title:<18}{own.wall:>14.1f} s{resident.wall:>10.1f} s{own.cpu:>20.1f} s{resident.cpu:>10.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="transformers")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    settings = [f"generator.backend={given.backend}", "tracking.trackers=[]", *given.set]
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), python=given.python, settings=settings)
        prepare(bench)
        socket = bench.folder / "engine"
        bench.rla("serve", "start", "--socket", str(socket), "--parent", str(os.getpid()))
        try:
            first = bench.stage("evaluate", "resident", *WARM_UP, iteration=0, socket=socket)
            seconds = bench.iteration(socket)
        finally:
            bench.engine = None
            bench.rla("serve", "stop", "--socket", str(socket))
        print(f"{given.backend}, one iteration of the small setting {' '.join(given.set)}")
        report(seconds["own"], seconds["resident"])
        print(f"start of the resident engine and its first episode: {first.wall:.1f} s, once a run")
        print(f"rows that differ between the two: {differing(bench.folder)}")


if __name__ == "__main__":
    main()
