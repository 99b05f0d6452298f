"""`rla make-tasks --curate`: the training pool without what the start model always or never solves."""

from __future__ import annotations

import json
from pathlib import Path

from rla.store.manifest import MANIFEST, read_json
from rla.store.reading import read_tasks
from rla.store.shards import Origin, write_shard
from tests.integration.conftest import Rla
from tests.integration.pipelines import contents
from tests.unit.builders import trajectory


def played(folder: Path, names: list[str]) -> None:
    """Two episodes of each task: the first is always won, the second never, the others are won once."""
    rows = []
    for place, name in enumerate(names):
        for number in range(2):
            won = place == 0 or (place > 1 and number == 0)
            reason = "won" if won else "max_steps"
            outcome = 1 if won else -1
            rows.append(trajectory(f"{name}-{number}", task_id=name, outcome=outcome, stop_reason=reason).row())
    write_shard(folder, "trajectories", rows, Origin(config="c", inputs={}, seed=1))


def test_a_training_pool_is_curated(rla: Rla, tmp_path: Path) -> None:
    assert rla("make-tasks", "--run", "raw")[0] == 0
    names = sorted(task.task_id for task in read_tasks(tmp_path / "raw/0/pool"))
    assert len(names) > 3
    played(tmp_path / "t", names)
    code, said, error = rla("make-tasks", "--run", "r", "--curate", "t")
    assert code == 0 and "1 never_won, 1 always_won" in said, error
    assert sorted(task.task_id for task in read_tasks(tmp_path / "r/0/pool")) == names[2:]
    manifest = read_json(tmp_path / "r/0/pool" / MANIFEST)
    assert manifest["counts"]["kept"] == len(names) - 2 and len(manifest["input_digests"]) == 1
    assert contents(tmp_path / "r/test/pool") == contents(tmp_path / "raw/test/pool")
    assert rla("make-tasks", "--run", "r", "--curate", "t")[0] == 0  # made already
    code, _, error = rla("make-tasks", "--run", "r")
    assert code == 2 and "--overwrite" in error
    code, _, error = rla("make-tasks", "--run", "q", "--curate", "t", "--split", "test")
    assert code == 2 and "held out" in error
    code, _, error = rla("make-tasks", "--run", "q", "--curate", "t", "--set", "tasks.train_scenes=1")
    assert code == 2 and "are not among the" in error


def test_the_start_model_plays_the_training_pool(rla: Rla, tmp_path: Path) -> None:
    assert rla("make-tasks", "--run", "raw")[0] == 0
    folders = ("--tasks", "raw/0/pool", "--out", "t", "--metrics", "m.json")
    few = ("--set", "evaluation.rollouts_per_task=2", "--set", "evaluation.tasks=2")
    code, _, error = rla("evaluate", "--run", "raw", *folders, *few)
    assert code == 0, error
    assert json.loads((tmp_path / "m.json").read_text())["split"] == "train"
    code, _, error = rla("make-tasks", "--run", "r", "--curate", "t")  # an untrained model solves nothing
    assert code == 2 and "no task is left" in error and "always_won" in error
