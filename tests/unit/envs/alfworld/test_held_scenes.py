"""Scenes of `train` that training never has: their games are a held-out split of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rla.envs.alfworld.problem import Game, render_problem
from rla.envs.alfworld.tasks import builtin_tasks, game_of, imported_games
from rla.errors import UserError


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four games as the data lays them out: two of scene 7, one of 12 and one of 301; one of 7 in `valid_seen`."""
    folder = tmp_path_factory.mktemp("alfworld")
    made = builtin_tasks(seed=3, scenes=5, tasks_per_scene=1, size="tiny")
    for number, (task, scene) in enumerate(zip(made, (7, 7, 12, 301, 7), strict=True)):
        split = "valid_seen" if number == 4 else "train"
        place = folder / split / f"{task.kind}-Thing-None-Place-{scene}" / f"trial_{number}"
        place.mkdir(parents=True)
        write_game(place / "game.tw-pddl", game_of(task.payload))
    return folder


def write_game(path: Path, game: Game) -> None:
    task = json.dumps({"task": [{"rhs": f"Your task is to: {game.sentence}"}]})
    grammar = f'{task}\naction PutObject {{ template :: "{game.verbs.value} the thing" }}'
    content = {"pddl_problem": render_problem(game.problem), "grammar": grammar, "solvable": True}
    path.write_text(json.dumps(content))


def scenes(folder: Path, split: str, *held: str) -> list[str]:
    return sorted(task.scene for task in imported_games(folder, split=split, held_scenes=held))


def test_training_has_the_games_of_the_other_scenes(data: Path) -> None:
    assert scenes(data, "train") == ["FloorPlan12", "FloorPlan301", "FloorPlan7", "FloorPlan7"]
    assert scenes(data, "train", "FloorPlan7") == ["FloorPlan12", "FloorPlan301"]


def test_the_split_of_held_scenes_has_the_rest_of_train(data: Path) -> None:
    found = list(imported_games(data, split="valid_scenes", held_scenes=("FloorPlan7", "FloorPlan301")))
    assert sorted(task.scene for task in found) == ["FloorPlan301", "FloorPlan7", "FloorPlan7"]
    assert {task.split for task in found} == {"valid_scenes"}


def test_other_splits_keep_their_games(data: Path) -> None:
    assert scenes(data, "valid_seen", "FloorPlan7") == ["FloorPlan7"]


def test_a_scene_without_games_is_refused(data: Path) -> None:
    with pytest.raises(UserError, match="FloorPlan8"):
        scenes(data, "train", "FloorPlan7", "FloorPlan8")


def test_the_split_needs_scenes(data: Path) -> None:
    with pytest.raises(UserError, match=r"env\.own\.held_scenes"):
        scenes(data, "valid_scenes")
