"""An arm's folder: what it shares with the start, and what happens when the start changes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Thread

import pytest
import yaml
from rla_study.ablation.design import Arm, Design
from rla_study.ablation.folders import RUN, SHARED, START, make_arm, share_files, start_folder, write_pipeline
from rla_study.ablation.run import run_ablation

from rla.errors import UserError
from rla.models.checkpoint import BASE, base_of
from rla.pipeline.plan import followed
from rla.store.layout import artifact
from rla.store.manifest import KEY

ARM = Arm(name="full", title="the loop", changes={})
DESIGN = Design(shared={"seed": 0}, iterations=4, evaluate_every=2, seeds=(1,), baseline="full", arms=(ARM,))


def made_start(root: Path, content: str) -> None:
    for name in SHARED:
        path = artifact(start_folder(root) / RUN, name, 0)
        file = path if path.suffix else path / "part"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_text(content)


def test_an_arm_follows_all_that_the_start_does_not_stand_for(tmp_path: Path) -> None:
    made_start(tmp_path, "first")
    folder = make_arm(tmp_path, DESIGN, ARM, 1)
    pipeline = yaml.safe_load((folder / "dvc.yaml").read_text())
    assert not set(pipeline["stages"]) & set(START)
    assert {"seed", "env", "rollout", "credit"} <= followed(pipeline)
    plan = yaml.safe_load((folder / "iterations.yaml").read_text())
    assert plan["evaluations"] == [2, 4]
    assert yaml.safe_load((folder / "params.yaml").read_text()) == {"seed": 1}


def test_a_start_that_was_made_anew_is_linked_anew(tmp_path: Path) -> None:
    made_start(tmp_path, "first")
    folder = make_arm(tmp_path, DESIGN, ARM, 1)
    policy = folder / RUN / "0" / "policy" / "part"
    inode = policy.stat().st_ino
    make_arm(tmp_path, DESIGN, ARM, 1)
    assert policy.stat().st_ino == inode
    made_start(tmp_path, "second")
    make_arm(tmp_path, DESIGN, ARM, 1)
    assert policy.read_text() == "second"
    assert (folder / RUN / "eval" / "0" / "metrics.json").read_text() == "second"


def test_further_held_out_splits_are_shared_too(tmp_path: Path) -> None:
    made_start(tmp_path, "first")
    made = start_folder(tmp_path) / RUN / "splits/unseen"
    for name in ("test/pool/part", "eval/0/trajectories/part", "eval/0/metrics.json"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("unseen")
    folder = make_arm(tmp_path, DESIGN, ARM, 1) / RUN / "splits/unseen"
    assert (folder / "test/pool/part").stat().st_ino == (made / "test/pool/part").stat().st_ino
    assert (folder / "eval/0/metrics.json").read_text() == "unseen"


def test_the_weights_below_an_adapter_are_shared_with_it(tmp_path: Path) -> None:
    """An arm whose models are adapters cannot load them otherwise."""
    (root := tmp_path / "arms" / ".." / "root").mkdir(parents=True)
    made_start(root, "first")
    start = start_folder(root) / RUN
    (base := artifact(start, "init_policy", 0)).mkdir(parents=True)
    (base / "model.safetensors").write_text("weights")
    (model := artifact(start, "first_policy", 0) / "model").mkdir()
    files = {"model.safetensors": {"bytes": 7, "sha256": ""}}
    (model / BASE).write_text(json.dumps({"base": os.path.relpath(base, model), KEY: files}))
    folder = make_arm(root, DESIGN, ARM, 1) / RUN
    found = base_of(artifact(folder, "first_policy", 0) / "model")
    assert found is not None and found.folder == artifact(folder.resolve(), "init_policy", 0)
    assert (found.folder / "model.safetensors").read_text() == "weights"


def test_a_start_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="start of the ablation is incomplete"):
        share_files(tmp_path / "absent", tmp_path / "target")


def test_a_pipeline_file_that_is_right_is_left_alone(tmp_path: Path) -> None:
    write_pipeline(tmp_path, {"seed": 0}, {"iterations": {}}, leave_out=START)
    before = (tmp_path / "dvc.yaml").stat().st_mtime_ns
    write_pipeline(tmp_path, {"seed": 1}, {"iterations": {}}, leave_out=START)
    assert (tmp_path / "dvc.yaml").stat().st_mtime_ns == before


def test_calls_at_the_same_time_do_not_take_each_others_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another call begins to write the start's files while this one writes its first."""
    flushed = os.fsync
    other = Thread(target=write_pipeline, args=(tmp_path, {"seed": 0}, {"iterations": {}}), kwargs={"leave_out": ()})

    def meanwhile(descriptor: int) -> None:
        flushed(descriptor)
        monkeypatch.setattr(os, "fsync", flushed)
        other.start()

    (tmp_path / ".dvc").mkdir()
    monkeypatch.setattr(os, "fsync", meanwhile)
    write_pipeline(tmp_path, {"seed": 0}, {"iterations": {}}, leave_out=())
    other.join(60)
    assert not other.is_alive()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".dvc", "dvc.yaml", "iterations.yaml", "params.yaml"]


def test_seeds_and_arms_that_the_design_has_not_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the design has the seeds 1"):
        run_ablation(DESIGN, tmp_path, jobs=1, seeds=[7], say=print)
    with pytest.raises(UserError, match="no such arm; there are full"):
        run_ablation(DESIGN, tmp_path, jobs=1, only=["all"], say=print)


def test_what_the_first_judge_said_of_the_frozen_probe_is_shared(tmp_path: Path) -> None:
    """Without it the change of the judge would begin at the arm's first evaluation."""
    made_start(tmp_path, "first")
    made, names = start_folder(tmp_path) / RUN, ("probe/labels.json", "probe/trajectories/part", "eval/0/probe/part")
    for name in names:
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("first")
    folder = make_arm(tmp_path, DESIGN, ARM, 1)
    assert [(folder / RUN / name).read_text() for name in names] == ["first"] * 3
