"""Plays one game in both engines at once and stops at the first difference in text, commands or `won`.

Actions are drawn from a mix: the expert's, admissible ones (those that touch things more often than goings),
and now and then one that is not admissible. Play goes on after a win.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from pathlib import Path

from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.alfworld.expert import Expert
from rla.envs.alfworld.game import Game, read_grammar
from rla.envs.alfworld.goals import TaskKind
from rla.envs.alfworld.textworld import StockEngine, game_data
from rla.envs.observation import Observation

INVALID = (
    "go to mars 1",
    "take mug 1 from cabinet 1",
    "open fridge 9",
    "LOOK",
    "",
    "put mug 1 in/on sinkbasin 1",
)
IDLE = ("go to", "look", "inventory", "examine", "help")


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of the expert's and of inadmissible actions; the rest is drawn from the admissible ones."""

    expert: float = 0.4
    invalid: float = 0.06


def data_folder() -> Path:
    """The folder of the real games, `json_2.1.1`, whether it exists or not."""
    return Path(os.environ.get("ALFWORLD_DATA", "~/.cache/alfworld")).expanduser() / "json_2.1.1"


def real_games(count: int, *, split: str = "valid_seen", seed: int = 0) -> list[Path]:
    """`count` game files, the six kinds in turn, drawn without repetition."""
    rng = random.Random(seed)
    by_kind = []
    for kind in TaskKind:
        paths = sorted((data_folder() / split).glob(f"{kind}-*/*/game.tw-pddl"))
        by_kind.append(rng.sample(paths, len(paths)))
    turns = max(map(len, by_kind), default=0)
    drawn = [paths[turn] for turn in range(turns) for paths in by_kind if turn < len(paths)]
    return drawn[:count]


def play_both(game: Game, *, steps: int, seed: int, mix: Mix, source: Path | None = None) -> int:
    """The number of steps played alike (the first observation counts). Raises `AssertionError` otherwise."""
    rng = random.Random(seed)
    expert = Expert(seed=seed)
    data = json.loads(source.read_bytes()) if source is not None else {}
    if not data or read_grammar(data["grammar"])[1] is not game.verbs:  # the file speaks the other dialect
        data = game_data(game)
    fast, stock = FastEngine(FastGame(game)), StockEngine(data)
    try:
        ours, theirs = fast.reset(), stock.reset()
        history: list[str] = []
        _compare(ours, theirs, history)
        for _ in range(steps):
            action = _choose(rng, mix, ours, expert)
            history.append(action)
            ours, theirs = fast.step(action), stock.step(action)
            _compare(ours, theirs, history)
    finally:
        stock.close()
    return steps + 1


def _choose(rng: random.Random, mix: Mix, observation: Observation, expert: Expert) -> str:
    advice = expert.act(observation.text, observation.commands)
    draw = rng.random()
    if draw < mix.expert:
        return advice
    busy = [command for command in observation.commands if not command.startswith(IDLE)]
    action = rng.choice(busy if busy and rng.random() < 0.6 else observation.commands)
    if draw > 1 - mix.invalid:
        action = rng.choice(INVALID)
    expert.notice(action)
    return action


def _compare(ours: Observation, theirs: Observation, history: list[str]) -> None:
    assert ours.text == theirs.text, f"text differs after {history}\n{ours.text!r}\n{theirs.text!r}"
    extra, missing = set(ours.commands) - set(theirs.commands), set(theirs.commands) - set(ours.commands)
    assert ours.commands == theirs.commands, f"commands differ after {history}: {extra=} {missing=}"
    assert (ours.won, ours.done) == (theirs.won, theirs.done), f"won differs after {history}"
