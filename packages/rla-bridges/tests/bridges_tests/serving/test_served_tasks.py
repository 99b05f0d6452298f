"""Which task a reset asks for, and which tasks there are."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rla_bridges.serving.openenv_messages import BadMessage
from rla_bridges.serving.served_tasks import served_tasks, task_card

from bridges_tests.serving.counting import TEST, served
from rla.errors import UserError
from rla.store.shards import Origin, write_shard
from tests.unit.builders import configured, task

TASKS = served().tasks
SMALL = ("tasks.train_scenes=2", "tasks.test_scenes=1", "tasks.tasks_per_scene=2")


@pytest.mark.parametrize(
    ("data", "task_id"),
    [
        ({"seed": 0}, "t1"),
        ({"seed": 1}, "t2"),
        ({"seed": 3}, "t1"),  # seeds go round
        ({"seed": 10**30}, "t2"),
        ({"seed": 5, "split": "test"}, "v9"),
        ({"index": 2}, "t3"),
        ({"index": 2, "seed": 0}, "t3"),
        ({"task_id": "v9", "index": 0, "seed": 0}, "v9"),
        ({"episode_id": "t2", "seed": 0}, "t2"),
        ({"episode_id": "an episode of the client's", "seed": 0}, "t1"),
    ],
)
def test_a_reset_names_its_task(data: dict[str, Any], task_id: str) -> None:
    assert TASKS.chosen(data, turns=iter(())).task_id == task_id


def test_resets_that_name_none_take_turns() -> None:
    turns = count()
    assert [TASKS.chosen({}, turns=turns).task_id for _ in range(4)] == ["t1", "t2", "t3", "t1"]


@pytest.mark.parametrize(
    "data",
    [
        {"seed": -1},
        {"seed": True},
        {"seed": 1.0},
        {"seed": "1"},
        {"index": 3},
        {"index": [0]},
        {"task_id": "nope"},
        {"task_id": {}},
        {"task_id": "x" * 256},
        {"episode_id": 5},
        {"split": "valid"},
        {"split": ["train"]},
    ],
)
def test_a_reset_that_names_no_task_rightly_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(BadMessage) as flaw:
        TASKS.chosen(data, turns=count())
    assert flaw.value.code == "VALIDATION_ERROR"


def test_a_card_does_not_show_the_payload() -> None:
    assert "secret" not in json.dumps(task_card(TEST[0], 0))


def test_an_environments_own_tasks_are_served_by_split() -> None:
    both = served_tasks(configured(*SMALL), split=None, pool=None)
    assert {name: len(tasks) for name, tasks in both.splits.items()} == {"train": 4, "test": 2}
    only = served_tasks(configured(*SMALL), split="test", pool=None)
    assert only.splits == {"test": both.splits["test"]}


def pool_of(folder: Path, *tasks: Any) -> Path:
    write_shard(folder, "tasks", [each.row() for each in tasks], Origin(config="c", inputs={}, seed=0))
    return folder


def test_the_tasks_of_a_pool_are_served(tmp_path: Path) -> None:
    pool = pool_of(tmp_path / "pool", task("b"), task("a"), task("c", split="test"))
    found = served_tasks(configured(), split=None, pool=pool)
    assert {name: [each.task_id for each in tasks] for name, tasks in found.splits.items()} == {
        "train": ["a", "b"],
        "test": ["c"],
    }


def test_a_pool_of_another_environment_is_refused(tmp_path: Path) -> None:
    pool = pool_of(tmp_path / "pool", task("a", env="coding"))
    with pytest.raises(UserError, match="its tasks are of coding, not of alfworld; give --env coding"):
        served_tasks(configured(), split=None, pool=pool)


def test_a_split_without_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no task of split 'valid'; correct --split"):
        served_tasks(configured(), split="valid", pool=pool_of(tmp_path / "pool", task("a")))
