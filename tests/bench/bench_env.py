"""Fast engine against TextWorld, side by side in one process: `python -m tests.bench.bench_env --games 12`.

A load is file to first observation (parse, build, reset); a step includes the admissible commands. Both
engines play the same actions. Medians over games and the ratios are printed.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.alfworld.game import Game
from rla.envs.alfworld.textworld import StockEngine
from rla.envs.observation import Environment, Observation
from tests.parity.alfworld_play import real_games


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one load, and of one step on average."""

    load: float
    step: float


def measure(make: Callable[[], Environment], *, steps: int, seed: int) -> Timing:
    """Times a load and `steps` admissible steps drawn with `seed`: the same ones in engines that agree."""
    rng = random.Random(seed)
    started = time.perf_counter()
    engine = make()
    observation: Observation = engine.reset()
    load = time.perf_counter() - started
    busy = 0.0
    for _ in range(steps):
        action = rng.choice(observation.commands)
        started = time.perf_counter()
        observation = engine.step(action)
        busy += time.perf_counter() - started
    engine.close()
    return Timing(load, busy / steps)


def fast(path: Path) -> Environment:
    return FastEngine(FastGame(Game.load(path)))


def stock(path: Path) -> Environment:
    return StockEngine(json.loads(path.read_bytes()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=12)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    paths = real_games(options.games, seed=options.seed)
    stock(paths[0]).close()  # imports and the shared library, once
    ours, theirs = [], []
    for number, path in enumerate(paths):
        ours.append(measure(lambda path=path: fast(path), steps=options.steps, seed=number))  # type: ignore[misc]
        theirs.append(measure(lambda path=path: stock(path), steps=options.steps, seed=number))  # type: ignore[misc]
        print(
            f"{path.parent.parent.name:58} load {ours[-1].load * 1e3:6.2f} ms {theirs[-1].load:6.2f} s"
            f"   step {ours[-1].step * 1e6:6.1f} us {theirs[-1].step * 1e3:6.1f} ms",
            flush=True,
        )
    for name in ("load", "step"):
        mine, other = ([getattr(timing, name) for timing in timings] for timings in (ours, theirs))
        print(
            f"{name}: fast {median(mine) * 1e3:.3f} ms, TextWorld {median(other) * 1e3:.1f} ms (medians); "
            f"{mean(other) / mean(mine):.0f} times as fast by total time, "
            f"{median(b / a for a, b in zip(mine, other, strict=True)):.0f} times by the median game"
        )


if __name__ == "__main__":
    main()
