"""Curation by pass rates: which tasks are dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.adaptation.selection import curated_pool
from rla.errors import UserError
from rla.store.shards import Origin, write_shard
from tests.unit.builders import task, trajectory

ORIGIN = Origin(config="c", inputs={}, seed=1)


def shard(folder: Path, won: dict[str, str]) -> Path:
    """A shard of episodes: `+` for one that was won, `-` for one that was lost, `x` for one that failed."""
    rows = [
        trajectory(
            f"{name}-{number}",
            task_id=name,
            outcome=1 if mark == "+" else -1,
            stop_reason={"+": "won", "-": "max_steps", "x": "env_error"}[mark],
        ).row()
        for name, marks in won.items()
        for number, mark in enumerate(marks)
    ]
    write_shard(folder, "trajectories", rows, ORIGIN)
    return folder


def test_rates_are_of_episodes_that_did_not_fail(tmp_path: Path) -> None:
    folder = shard(tmp_path / "t", {"a": "++-x", "b": "--", "c": "xx"})
    kept, counts = curated_pool([task(name) for name in "abc"], folder)
    assert [one.task_id for one in kept] == ["a"]
    assert counts == {"unmeasured": 1, "never_won": 1, "always_won": 0, "kept": 1}


def test_a_pool_is_curated_and_counted(tmp_path: Path) -> None:
    folder = shard(tmp_path / "t", {"a": "+-", "b": "--", "c": "++", "d": "+---"})
    tasks = [task(name) for name in "abcde"]
    kept, counts = curated_pool(tasks, folder)
    assert [one.task_id for one in kept] == ["a", "d"]
    assert counts == {"unmeasured": 1, "never_won": 1, "always_won": 1, "kept": 2}


def test_a_shard_of_other_tasks_is_refused(tmp_path: Path) -> None:
    folder = shard(tmp_path / "t", {"a": "+-", "other": "+-"})
    with pytest.raises(UserError, match="1 of its 2 tasks are not among the 1"):
        curated_pool([task("a")], folder)


def test_a_pool_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    folder = shard(tmp_path / "t", {"a": "++", "b": "--"})
    with pytest.raises(UserError, match=r"no task is left .*1 always_won"):
        curated_pool([task("a"), task("b")], folder)
