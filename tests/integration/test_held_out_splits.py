"""Several held-out splits: each has a pool, rows and figures of its own, and the main one is as if it were alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rla.llm.base import Completion, Request
from rla.llm.factory import ScriptedGenerator
from rla.store.manifest import read_json
from rla.store.reading import read_rows, read_tasks
from tests.integration.conftest import Rla
from tests.integration.pipelines import contents
from tests.unit.envs.alfworld.scenes import write_game

pytestmark = pytest.mark.usefixtures("forked_python")

TWO = ("--set", "tasks.test_splits=[test, valid_unseen]")
MAIN, FURTHER = "test", "splits/valid_unseen/test"


def figures(path: Path) -> dict[str, Any]:
    return {key: value for key, value in read_json(path).items() if key != "seconds"}


def test_all_splits_are_made_evaluated_and_reported(rla: Rla, tmp_path: Path) -> None:
    for run, splits in (("one", ()), ("two", TWO)):
        assert rla("make-tasks", "--run", run, *splits)[0] == 0
        assert rla("evaluate", "--run", run, *splits)[0] == 0
    one, two = tmp_path / "one", tmp_path / "two"
    pools = {name: read_tasks(two / name / "pool") for name in (MAIN, FURTHER)}
    assert {task.split for task in pools[FURTHER]} == {"valid_unseen"}
    ids = {name: {task.task_id for task in tasks} for name, tasks in pools.items()}
    assert len(ids[FURTHER]) == 4 and not ids[MAIN] & ids[FURTHER]
    assert contents(one / "0/pool") == contents(two / "0/pool")  # training does not depend on what is held out
    played = read_rows(two / "splits/valid_unseen/eval/0/trajectories", "trajectories", ["task_id"])
    assert {row["task_id"] for row in played} == ids[FURTHER]
    assert figures(two / "eval/0/metrics.json") == figures(one / "eval/0/metrics.json")
    found = figures(two / "splits/valid_unseen/eval/0/metrics.json")
    assert (found["split"], found["episodes"]) == ("valid_unseen", 4)
    assert found["success_low"] <= found["success"] <= found["success_high"]
    said = rla("report", "--run", "two")[1]
    assert "Held-out tasks, test" in said and "Held-out tasks, valid_unseen" in said
    assert "Held-out tasks\n" in rla("report", "--run", "one")[1]


def test_evaluation_alone_samples_at_its_top_p(rla: Rla, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    plain = ScriptedGenerator.generate

    async def noted(engine: ScriptedGenerator, request: Request) -> list[Completion]:
        asked.append(request.top_p)
        return await plain(engine, request)

    monkeypatch.setattr(ScriptedGenerator, "generate", noted)
    narrow = ("--run", "r", "--set", "evaluation.top_p=0.6")
    found = {}
    for stage in ("evaluate", "rollout", "score-steps"):
        assert rla(stage, *narrow)[0] == 0
        found[stage], asked[:] = set(asked), []
    assert found == {"evaluate": {0.6}, "rollout": {1.0}, "score-steps": {1.0}}


def test_workers_play_every_split(rla: Rla, tmp_path: Path) -> None:
    assert rla("evaluate", "--run", "r", *TWO)[0] == 0
    before = {path.name: figures(path) for path in (tmp_path / "r").rglob("eval/0/metrics.json")}
    for folder in ("eval", "splits/valid_unseen/eval"):
        (tmp_path / "r" / folder).rename(tmp_path / folder.replace("/", "-"))
    code, said, error = rla("evaluate", "--run", "r", *TWO, "--workers", "2")
    assert code == 0 and "valid_unseen: trajectories" in said and "missing slices" not in said, error
    assert before == {path.name: figures(path) for path in (tmp_path / "r").rglob("eval/0/metrics.json")}


def test_the_last_slice_measures_every_split(rla: Rla, tmp_path: Path) -> None:
    assert rla("make-tasks", "--run", "r", *TWO)[0] == rla("init-model", "--run", "r")[0] == 0
    metrics = [tmp_path / "r" / name for name in ("eval/0/metrics.json", "splits/valid_unseen/eval/0/metrics.json")]
    for index in (2, 1):
        assert not any(path.exists() for path in metrics)
        assert rla("evaluate", "--run", "r", *TWO, "--slice", f"{index}/2")[0] == 0
    assert [json.loads(path.read_text())["episodes"] for path in metrics] == [4, 4]


def test_a_folder_that_an_option_names_is_of_one_split(rla: Rla, tmp_path: Path) -> None:
    assert rla("make-tasks", "--run", "r", *TWO)[0] == 0
    pool = f"r/{FURTHER}/pool"
    assert rla("evaluate", "--run", "r", *TWO, "--tasks", pool, "--out", "e", "--metrics", "m.json")[0] == 0
    assert figures(tmp_path / "m.json")["split"] == "valid_unseen"
    assert not (tmp_path / "r/eval").exists() and not (tmp_path / "r/splits/valid_unseen/eval").exists()


def test_one_split_can_be_made_alone(rla: Rla, tmp_path: Path) -> None:
    code, said, _ = rla("make-tasks", "--run", "r", *TWO, "--split", "valid_unseen")
    assert code == 0 and "test valid_unseen: 4 tasks" in said
    assert [path.name for path in (tmp_path / "r").iterdir()] == ["splits", "timings"] or not (
        tmp_path / "r/0"
    ).exists()


def made_games(rla: Rla, tmp_path: Path) -> None:
    """The pools of a run as game files of the splits train and test."""
    assert rla("make-tasks", "--run", "r")[0] == 0
    for folder in ("r/0/pool", "r/test/pool"):
        for task in read_tasks(tmp_path / folder):
            write_game(tmp_path / "games" / task.split / f"game-{task.scene}" / task.task_id, task)


def test_splits_of_the_same_games_are_refused(rla: Rla, tmp_path: Path) -> None:
    made_games(rla, tmp_path)
    for name in ("one", "again"):
        (tmp_path / "games" / name).symlink_to("test")
    imported = ("--set", "tasks.path=games")
    code, _, error = rla("make-tasks", "--run", "q", *imported, "--set", "tasks.test_splits=[one, again]")
    assert code == 2 and "tasks.test_splits: one and again share 4 of 4 tasks" in error
    assert not (tmp_path / "q/test").exists()


def test_games_that_train_and_are_held_out_are_refused(rla: Rla, tmp_path: Path) -> None:
    made_games(rla, tmp_path)
    (tmp_path / "games/valid_seen").symlink_to("train")
    both = ("--set", "tasks.path=games", "--set", "tasks.test_splits=[valid_seen]")
    code, _, error = rla("make-tasks", "--run", "q", *both)
    assert code == 2 and "train and valid_seen share 6 of 6 tasks" in error
    assert not (tmp_path / "q/0").exists()


def test_a_named_pool_that_trains_is_told(rla: Rla, tmp_path: Path) -> None:
    """Evaluating what trains may be wanted (curation), but not without a word."""
    assert rla("make-tasks", "--run", "r")[0] == 0
    code, said, error = rla("evaluate", "--run", "r", "--tasks", "r/0/pool", "--out", "e", "--metrics", "m.json")
    assert code == 0 and "6 of 6 tasks are in the training pool" in said + error
