"""No task changes into one that is held out: `adapt-env` on files."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path

from rla.store.layout import artifact, held_out_root
from rla.store.reading import read_candidates
from rla.store.records import Status
from rla.store.shards import Origin, write_shard
from tests.unit.adaptation.run_folder import Loop

SPLITS = ("first", "second")


def test_a_change_that_equals_a_held_out_task_of_any_split_is_refused(tmp_path: Path) -> None:
    loop = Loop(tmp_path / "loop", overrides=(f"tasks.test_splits=[{','.join(SPLITS)}]",))
    loop.turn(0.1)
    candidates = artifact(loop.run, "candidates", 1)
    before = read_candidates(candidates)
    assert len(before) >= len(SPLITS)
    for split, child in zip(SPLITS, before, strict=False):
        held_out = replace(
            child, split=split, slot=child.task_id, status=Status.ACTIVE.value, parent_id=None, edit=None
        )
        folder = artifact(held_out_root(loop.run, SPLITS, split), "test_tasks", 0)
        shutil.rmtree(folder)
        write_shard(folder, "tasks", [asdict(held_out)], Origin(config="", inputs={}, seed=0))
    shutil.rmtree(candidates)
    loop.stage("adapt-env")
    after = {child.task_id for child in read_candidates(candidates)}
    assert not after & {child.task_id for child in before[: len(SPLITS)]}
    assert after >= {child.task_id for child in before[len(SPLITS) :]}
