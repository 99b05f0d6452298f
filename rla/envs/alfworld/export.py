"""Tasks as genuine ALFWorld games on disk, for the stock engine and for other tools.

`<folder>/<split>/<kind>-<object>-None-<target>-<scene>/trial_<task id>/` holds game.tw-pddl, traj_data.json
and initial_state.pddl, as `AlfredTWEnv` collects them from a data folder. Domain and grammar come from the
installed `alfworld` package; every part of a path is checked against a whitelist of signs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rla.envs.alfworld.problem import Game, TaskKind, render_problem
from rla.envs.alfworld.tasks import game_of
from rla.envs.alfworld.textworld import game_data
from rla.errors import UserError
from rla.store.records import Task

_SAFE = re.compile(r"[A-Za-z0-9_]{1,80}", re.ASCII)


def export_games(tasks: Iterable[Task], folder: Path) -> int:
    """Writes one game per task below `folder` and says how many; existing files of the same task are
    replaced.

    Raises `UserError` when the extra that brings `alfworld` is missing, a name cannot be part of a path, or a task
    withholds commands, which a game's file cannot say.
    """
    count = 0
    for task in tasks:
        game = game_of(task.payload)
        if game.withheld:
            raise UserError(f"task {task.task_id} withholds commands, which a game.tw-pddl cannot say; leave it out")
        place = folder.joinpath(*_parts(task, game))
        data = {**game_data(game), "solvable": True}
        place.mkdir(parents=True, exist_ok=True)
        (place / "game.tw-pddl").write_text(json.dumps(data))
        (place / "traj_data.json").write_text(json.dumps(trajectory_data(task, game), indent=1))
        (place / "initial_state.pddl").write_text(render_problem(game.problem))
        count += 1
    return count


def trajectory_data(task: Task, game: Game) -> dict[str, Any]:
    """What ALFWorld's task templates and its handcoded expert read from traj_data.json."""
    goal = game.problem.goal
    looks = goal.kind is TaskKind.LOOK
    return {
        "task_id": f"trial_{task.task_id}",
        "task_type": goal.kind.value,
        "pddl_params": {
            "object_target": goal.object_type,
            "parent_target": "" if looks else goal.target_type,
            "toggle_target": goal.target_type if looks else "",
            "mrecep_target": "",
            "object_sliced": False,
        },
        "scene": {"floor_plan": task.scene, "scene_num": _scene_name(task)},
        "turk_annotations": {"anns": [{"task_desc": game.sentence}]},
        "alfworld_task": game.sentence,
    }


def _parts(task: Task, game: Game) -> tuple[str, str, str]:
    goal = game.problem.goal
    words = (goal.kind.value, goal.object_type, "None", goal.target_type, _scene_name(task))
    for part in (task.split, task.task_id, *words):
        if not _SAFE.fullmatch(part):
            raise UserError(f"task {task.task_id!r}: {part!r} cannot be part of a path; use letters, digits and '_'")
    return task.split, "-".join(words), f"trial_{task.task_id}"


def _scene_name(task: Task) -> str:
    """ALFRED's folders name a scene by its number alone."""
    return task.scene.removeprefix("FloorPlan")
