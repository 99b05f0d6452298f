"""Exported tasks are ALFWorld data folders that are read back as the same tasks."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rla.config.sections import TasksConfig
from rla.envs.alfworld.game import game_of
from rla.envs.alfworld.tasks import builtin_tasks, imported_games
from rla.envs.alfworld.textworld import export_games
from rla.errors import UserError
from rla.store.records import Task

INSTALLED = importlib.util.find_spec("alfworld") is not None


def one_task(kind: str) -> Task:
    (task,) = builtin_tasks(seed=2, scenes=1, tasks_per_scene=1, size="tiny", kinds=[kind])
    return task


@pytest.mark.skipif(not INSTALLED, reason="needs the alfworld extra")
def test_the_sidecar_names_receptacle_or_lamp(tmp_path: Path) -> None:
    placed, lit = one_task("clean"), one_task("look")
    export_games([placed, lit], tmp_path)
    target = game_of(placed.payload).problem.goal.target_type
    for task, parent, toggle in ((placed, target, ""), (lit, "", "DeskLamp")):
        (path,) = tmp_path.glob(f"train/*/trial_{task.task_id}/traj_data.json")
        parameters = json.loads(path.read_text())["pddl_params"]
        assert (parameters["parent_target"], parameters["toggle_target"]) == (parent, toggle)


@pytest.mark.parametrize("field", ["split", "scene", "task_id"])
def test_names_that_could_leave_the_folder_are_refused(field: str, tmp_path: Path) -> None:
    changed: dict[str, Any] = {field: "../elsewhere"}
    task = replace(one_task("place"), **changed)
    with pytest.raises(UserError, match="cannot be part of a path"):
        export_games([task], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(INSTALLED, reason="the alfworld extra is installed")
def test_without_the_extra_the_remedy_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rla\[alfworld\]"):
        export_games([one_task("place")], tmp_path / "out")


@pytest.mark.skipif(not INSTALLED, reason="needs the alfworld extra")
def test_exported_tasks_are_imported_as_the_same_tasks(tmp_path: Path) -> None:
    tasks = builtin_tasks(seed=2, scenes=6, tasks_per_scene=1, size="tiny")
    assert export_games(tasks, tmp_path) == 6
    config = TasksConfig(path=str(tmp_path))
    found = {task.task_id: task for task in imported_games(config, split="train")}
    assert set(found) == {task.task_id for task in tasks}
    for task in tasks:
        assert replace(found[task.task_id], plan_length=task.plan_length) == task
    for path in tmp_path.glob("train/*/*/game.tw-pddl"):
        assert json.loads(path.read_text())["solvable"] is True
        assert (path.parent / "initial_state.pddl").is_file()
