"""Rows of the task pool, built in and imported."""

from __future__ import annotations

import json
from pathlib import Path

from rla_programs.coding.data.problems import problem_of
from rla_programs.coding.tasks import builtin_problems, imported_problems

from rla.store.schema import to_table


def test_built_in_problems_are_rows_that_can_be_stored() -> None:
    tasks = builtin_problems(seed=0, count=20, split="train", levels=(1, 2), tests=5)
    assert to_table("tasks", [task.row() for task in tasks]).num_rows == 20
    assert {(task.env, task.split, task.status) for task in tasks} == {("coding", "train", "active")}
    assert all(task.scene == "builtin" and task.slot == task.task_id for task in tasks)
    assert all(len(problem_of(task.payload).tests) == 5 for task in tasks)
    held_out = builtin_problems(seed=0, count=20, split="valid_unseen", held_out=True)
    assert {task.instruction for task in tasks}.isdisjoint(task.instruction for task in held_out)


def test_imported_problems_are_told_of(tmp_path: Path) -> None:
    row = {"question": "Print 1.", "test_input": [""], "test_output": ["1\n"]}
    path = tmp_path / "data.json"
    path.write_text(json.dumps([row, row]))
    told: list[str] = []
    tasks = imported_problems(path, split="train", tell=told.append)
    assert [(task.instruction, task.scene, task.kind) for task in tasks] == [("Print 1.", "published", "stdio")]
    assert told == [f"{path}: 1 problems, 1 rows skipped (1 the same problem again)"]
