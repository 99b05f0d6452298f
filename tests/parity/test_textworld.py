"""The fast engine answers as TextWorld does, byte for byte: a small sample, because `make parity` plays many games."""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from rla.config.sections import TasksConfig
from rla.envs.alfworld.engine import FastEngine, FastGame
from rla.envs.alfworld.environment import Alfworld
from rla.envs.alfworld.game import Game, Layout, Verbs, game_of
from rla.envs.alfworld.goals import TaskKind
from rla.envs.alfworld.tasks import builtin_tasks
from rla.envs.alfworld.textworld import StockEngine, game_data
from tests.unit.envs.alfworld import scenes

from .alfworld_play import Mix, data_folder, play_both, real_games

STEPS = 20
# TextWorld takes up to six seconds to open a game of a large room.
SMALL_ROOMS = sorted(real_games(6), key=lambda path: path.stat().st_size)[:2]

pytestmark = pytest.mark.skipif(find_spec("alfworld") is None, reason="needs the stock engine: the extra alfworld")
needs_data = pytest.mark.skipif(
    not data_folder().is_dir(), reason=f"needs ALFWorld's games in {data_folder()}: run alfworld-download"
)


@pytest.fixture(scope="module", autouse=True)
def parsed_once() -> Iterator[None]:
    """TextWorld parses the same texts anew at each step, which is half of its time; in `make parity` it still does."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("textworld.envs.pddl.textgen", "textworld.logic"):
            parser = import_module(name)._PARSER
            patch.setattr(parser, "parse", lru_cache(1 << 14)(parser.parse))
        yield


@needs_data
@pytest.mark.parametrize(("number", "path"), list(enumerate(SMALL_ROOMS)), ids=lambda value: str(value)[-24:])
def test_real_games(number: int, path: Path) -> None:
    """Every second game is played in the packaged grammar, the others in their own."""
    game = Game.load(path)
    game = replace(game, verbs=Verbs.MOVE) if number % 2 else game
    assert play_both(game, steps=STEPS, seed=number, mix=Mix(), source=path) == STEPS + 1


@needs_data
def test_the_older_dialect_is_rebuilt_from_the_package_as_real_files_have_it() -> None:
    path = SMALL_ROOMS[0]
    game = Game.load(path)
    own, rebuilt = json.loads(path.read_bytes()), game_data(game)
    assert rebuilt["grammar"].split() == own["grammar"].split()
    assert rebuilt["pddl_domain"].split() == own["pddl_domain"].split()


def test_built_in_games() -> None:
    """The dialects in turn."""
    config = TasksConfig(train_scenes=2, tasks_per_scene=1, size="tiny", kinds=("two", "look"))
    for number, task in enumerate(builtin_tasks(config, seed=3)):
        spoken = replace(game_of(task.payload), verbs=[*Verbs][number % 2])
        assert play_both(spoken, steps=25, seed=number, mix=Mix()) == 26


def test_changed_games() -> None:
    """As rules change them, and with an added object, which has an id of ours."""
    parent = builtin_tasks(TasksConfig(train_scenes=1, tasks_per_scene=1, size="tiny", kinds=("place",)), seed=3)[0]
    editor = Alfworld()
    edits = editor.propose(parent, direction="harder", seed=0, count=1)
    problem = game_of(parent.payload).problem
    layout, kind = Layout.of(problem), problem.goal.object_type
    home = layout.names[layout.inside[layout.within_reach(kind)[0]]]
    edits.append(json.dumps({"add": [{"object_type": kind, "to": home, "count": 2}], "hint": "where_and_how"}))
    for number, edit in enumerate(edits):
        child = editor.apply(parent, edit, root=parent, taken=(), created=1)
        assert play_both(game_of(child.payload), steps=25, seed=number, mix=Mix()) == 26


@pytest.mark.parametrize(("kind", "verbs"), list(zip(TaskKind, [*Verbs] * 3, strict=True)))
def test_a_kitchen_of_odd_cases(kind: TaskKind, verbs: Verbs) -> None:
    """The agent starts facing two cabinets, a mug is in two places, things are hot or sliced at first."""
    target = "DeskLamp" if kind is TaskKind.LOOK else "SideTable"
    odd = (("isHot", "Mug_bar_1"), ("isSliced", "Apple_bar_1"), ("opened", "Cabinet_bar_1"))
    nested = (("inReceptacleObject", "Apple_bar_1", "Mug_bar_2"),)
    game = scenes.game(
        kind,
        "Mug",
        target,
        verbs=verbs,
        lying=(*scenes.LYING, ("Mug_bar_1", "Cabinet_bar_1")),
        extra=odd + nested,
        start=2,
    )
    assert play_both(game, steps=30, seed=len(kind), mix=Mix(expert=0.0)) == 31


def test_both_engines_name_the_same_places() -> None:
    """Also after a command that does nothing; without the fast engine TextWorld names none."""
    game = scenes.game()
    fast, stock = FastEngine(FastGame(game)), StockEngine(game_data(game), fast=FastEngine(FastGame(game)))
    actions = ("go to countertop 1", "sing", "take mug 2 from countertop 1", "go to fridge 1", "open fridge 1")
    try:
        ours, theirs = [fast.reset()], [stock.reset()]
        ours += [fast.step(action) for action in actions]
        theirs += [stock.step(action) for action in actions]
    finally:
        stock.close()
    assert ours == theirs and len({seen.place for seen in ours}) == 5
