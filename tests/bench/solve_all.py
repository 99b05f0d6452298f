"""Solver and expert on every real game: `python -m tests.bench.solve_all --split train --limit 300`.

The solver's plan is replayed in the fast engine and must end in `won`; the expert plays from text alone and
has `--steps` commands. Ends with 1 where a plan fails or the expert wins less than `--floor` of the games.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.alfworld.expert import Expert
from rla.envs.alfworld.game import Game
from rla.envs.alfworld.solver import solve
from tests.parity.alfworld_play import real_games


@dataclass(slots=True)
class Tally:
    """Counts by task kind, plan and episode lengths, seconds spent."""

    games: Counter[str] = field(default_factory=Counter)
    solved: Counter[str] = field(default_factory=Counter)
    expert: Counter[str] = field(default_factory=Counter)
    plan_steps: int = 0
    expert_steps: int = 0
    played: int = 0
    load_s: float = 0.0
    solve_s: float = 0.0
    expert_s: float = 0.0


def replay(engine: FastEngine, plan: list[str]) -> bool:
    observation = engine.reset()
    for command in plan:
        observation = engine.step(command)
    return observation.won


def expert_steps(engine: FastEngine, *, seed: int, limit: int) -> int:
    """The expert's number of steps to the win, `limit` + 1 where it has not won by then."""
    expert, observation = Expert(seed=seed), engine.reset()
    for step in range(1, limit + 1):
        observation = engine.step(expert.act(observation.text, observation.commands))
        if observation.won:
            return step
    return limit + 1


def run(split: str, *, count: int, seed: int, limit: int) -> Tally:
    tally = Tally()
    for number, path in enumerate(real_games(count, split=split, seed=seed)):
        started = time.perf_counter()
        tables = FastGame(Game.load(path))
        loaded = time.perf_counter()
        plan = solve(tables)
        engine = FastEngine(tables)
        won = plan is not None and replay(engine, plan)
        solved = time.perf_counter()
        steps = expert_steps(engine, seed=number, limit=limit)
        tally.load_s += loaded - started
        tally.solve_s += solved - loaded
        tally.expert_s += time.perf_counter() - solved
        kind = tables.goal.kind.value
        tally.games[kind] += 1
        tally.solved[kind] += won
        tally.plan_steps += len(plan or ())
        tally.played += min(steps, limit)
        if steps <= limit:
            tally.expert[kind] += 1
            tally.expert_steps += steps
        if not won:
            print(f"no winning plan: {path}")
    return tally


def report(split: str, tally: Tally) -> None:
    games, solved, expert = tally.games.total(), tally.solved.total(), tally.expert.total()
    for kind, count in sorted(tally.games.items()):
        print(f"  {kind:32} {count:5} games, solved {tally.solved[kind]:5}, expert {tally.expert[kind]:5}")
    print(
        f"{split}: {games} games; solver {solved} ({solved / games:.1%}), "
        f"{tally.plan_steps / games:.1f} steps a plan; "
        f"expert {expert} ({expert / games:.1%}), {tally.expert_steps / max(expert, 1):.1f} steps a win"
    )
    print(
        f"  per game: load {tally.load_s / games * 1e3:.2f} ms, solve and replay "
        f"{tally.solve_s / games * 1e3:.2f} ms; expert and engine {tally.played / tally.expert_s:.0f} steps/s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", nargs="+", default=["train", "valid_seen"])
    parser.add_argument("--limit", type=int, default=10**6, help="games per split, the kinds in turn")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--floor", type=float, default=0.95)
    options = parser.parse_args()
    failed = False
    for split in options.split:
        tally = run(split, count=options.limit, seed=options.seed, limit=options.steps)
        if not tally.games:
            sys.exit(f"no games of the split {split}: set ALFWORLD_DATA to the folder that holds json_2.1.1")
        report(split, tally)
        games = tally.games.total()
        failed |= tally.solved.total() < games or tally.expert.total() < options.floor * games
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
