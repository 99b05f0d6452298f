"""Rooms of the training games that are held out: no game of theirs trains, and they are a split of their own."""

from pathlib import Path

import pytest

from rla.config import Config
from rla.config.sections import TasksConfig
from rla.envs.alfworld.tasks import builtin_tasks
from rla.envs.registry import environment, load_config
from rla.errors import UserError

from .scenes import write_game

ROOMS = (301, 301, 302, 7)  # of the four training games


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four training games in three rooms and one of valid_seen in room 301, as `alfworld-download` leaves them."""
    root = tmp_path_factory.mktemp("data")
    tasks = builtin_tasks(TasksConfig(train_scenes=5, tasks_per_scene=1, size="tiny"), seed=4)
    places = [("train", room) for room in ROOMS] + [("valid_seen", 301)]
    for task, (split, room) in zip(tasks, places, strict=True):
        write_game(root / "json_2.1.1" / split / f"pick-Mug-None-Desk-{room}" / f"trial_{task.task_id}", task)
    return root


def config(folder: Path, *more: str) -> Config:
    return load_config(None, ["env.name=alfworld", f"tasks.path={folder}", *more])


def scenes(chosen: Config, split: str) -> list[str]:
    return [task.scene for task in environment("alfworld").import_tasks(chosen, split=split)]  # type: ignore[attr-defined]


def test_games_of_held_out_rooms_do_not_train_and_are_a_split_of_their_own(folder: Path) -> None:
    chosen = config(
        folder, "env.own.held_out_rooms=[FloorPlan301,FloorPlan7]", "tasks.test_splits=[valid_seen,held_out_rooms]"
    )
    assert scenes(chosen, "train") == ["FloorPlan302"]
    assert sorted(scenes(chosen, "held_out_rooms")) == ["FloorPlan301", "FloorPlan301", "FloorPlan7"]
    assert scenes(chosen, "valid_seen") == ["FloorPlan301"]  # as it comes, whatever trains


def test_a_held_out_task_names_its_split(folder: Path) -> None:
    chosen = config(folder, "env.own.held_out_rooms=[FloorPlan302]", "tasks.test_splits=[held_out_rooms]")
    (task,) = environment("alfworld").import_tasks(chosen, split="held_out_rooms")  # type: ignore[attr-defined]
    assert (task.split, task.scene) == ("held_out_rooms", "FloorPlan302")


def test_without_held_out_rooms_all_games_train(folder: Path) -> None:
    assert len(scenes(config(folder), "train")) == 4


def test_the_limit_counts_games_that_are_kept(folder: Path) -> None:
    chosen = config(folder, "env.own.held_out_rooms=[FloorPlan301]", "tasks.limit=1")
    assert len(scenes(chosen, "train")) == 1 and scenes(chosen, "train") != ["FloorPlan301"]


def test_a_room_without_games_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"held_out_rooms.*no game in 'FloorPlan303'"):
        scenes(config(folder, "env.own.held_out_rooms=[FloorPlan301,FloorPlan303]"), "train")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["tasks.path=null", "env.own.held_out_rooms=[FloorPlan301]"], "built-in scenes are drawn anew"),
        (["tasks.test_splits=[valid_seen,held_out_rooms]"], "held_out_rooms is empty"),
        (["env.own.held_out_rooms=[FloorPlan301]", "tasks.train_split=held_out_rooms"], "cannot train"),
    ],
)
def test_parameters_that_do_not_go_together_are_refused(folder: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        config(folder, *overrides)


def test_edits_that_the_environment_does_not_know_are_refused() -> None:
    with pytest.raises(UserError, match=r"adaptation\.edits: 'shell' is unknown; alfworld has add, goal"):
        load_config(None, ["env.name=alfworld", "adaptation.edits=[goal,shell]"])
