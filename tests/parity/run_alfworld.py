"""Plays many games in both engines: `python -m tests.parity.run_alfworld --games 60 --built-in 20`.

Prints one line per game and ends with 1 where any differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rla.config.sections import TasksConfig
from rla.envs.alfworld.game import Game, Verbs, game_of
from rla.envs.alfworld.tasks import builtin_tasks

from .alfworld_play import Mix, play_both, real_games


def cases(options: argparse.Namespace) -> Iterator[tuple[str, Game, Path | None]]:
    for number, path in enumerate(real_games(options.games, split=options.split, seed=options.seed)):
        game = Game.load(path)
        yield path.parent.parent.name, replace(game, verbs=Verbs.MOVE) if number % 2 else game, path
    if options.built_in:
        tasks = builtin_tasks(
            TasksConfig(train_scenes=options.built_in, tasks_per_scene=1, size=options.size), seed=options.seed
        )
        for number, task in enumerate(tasks):
            game = game_of(task.payload)
            verbs = list(Verbs)[number % 2]
            yield task.scene, Game(problem=game.problem, sentence=game.sentence, verbs=verbs), None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=60)
    parser.add_argument("--built-in", type=int, default=0)
    parser.add_argument("--size", default="small")
    parser.add_argument("--split", default="valid_seen")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    games = played = different = 0
    for number, (name, game, source) in enumerate(cases(options)):
        started = time.perf_counter()
        games += 1
        try:
            played += play_both(game, steps=options.steps, seed=options.seed + number, mix=Mix(), source=source)
            verdict = "alike"
        except AssertionError as difference:
            different += 1
            verdict = f"DIFFERENT: {difference}"
        print(f"{name} [{game.verbs}] {verdict} ({time.perf_counter() - started:.1f} s)", flush=True)
    print(f"{games} games, {played} observations alike, {different} games different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
