"""Which arms begin with the same files, and which with files of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rla_study.ablation.design import Arm, Design
from rla_study.ablation.folders import RAW, RUN, TASKS, make_arm, make_start
from rla_study.ablation.folders import SHARED as SHARED_FILES
from rla_study.ablation.starts import JUDGES_LESSONS, Start, needed_starts, start_changes, start_folder, starts_of

from rla.models.checkpoint import MANIFEST
from rla.store.layout import artifact
from stages import warm_start

SHARED = {"seed": 7, "warm_start": {"scenes": 3}, "credit": {"step_weight": 0.5}}


def arm(name: str, **changes: Any) -> Arm:
    return Arm(name=name, title=name, changes=changes)


REAL = arm("real", credit={"estimator": "outcome"}, train_policy={"clip_high": 0.3})
STITCHED = arm("stitched", warm_start={"scenes": 5}, credit={"estimator": "outcome"})
ALSO_STITCHED = arm("also-stitched", warm_start={"scenes": 5}, train_policy={"clip_high": 0.3})
DESIGN = Design(
    shared=SHARED, iterations=1, evaluate_every=0, seeds=(0, 1), baseline="real", arms=(REAL, STITCHED, ALSO_STITCHED)
)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"credit": {"estimator": "outcome"}, "policy": {"temperature": 0.5}}, {}),
        ({"warm_start": {"scenes": 5}, "seed": 3}, {"warm_start": {"scenes": 5}}),
        ({"warm_start": {"scenes": 3, "alike": 2}}, {"warm_start": {"alike": 2}}),  # 3 is what all share
        ({"policy": {"reply": "tagged", "temperature": 0.5}}, {"policy": {"reply": "tagged"}}),
        ({"judge": {"enabled": False}}, {}),  # the start that teaches a judge has the same policy
        ({"judge": {"enabled": False, "prompt": "published"}}, {"judge": {"prompt": "published"}}),
        ({"judge": {"votes": 5}, "collect": {"variant": "stitched"}}, {"collect": {"variant": "stitched"}}),
        ({"judge": {"enabled": True}}, {"judge": {"enabled": True}}),
        ({"env": {"own": {"tool": "none"}}}, {"env": {"own": {"tool": "none"}}}),
    ],
)
def test_a_start_follows_what_its_stages_read(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    assert start_changes(DESIGN, arm("one", **changes)) == expected


def test_arms_that_change_the_same_of_it_share_a_start() -> None:
    [real], [stitched], [same] = (starts_of(DESIGN, one, 0) for one in DESIGN.arms)
    assert (real.folder, real.params) == ("start", SHARED)
    assert stitched.folder == same.folder != "start"
    assert stitched.params == SHARED | {"warm_start": {"scenes": 5}}  # without the arm's own credit
    assert [start.folder for start in needed_starts(DESIGN, DESIGN.arms, DESIGN.seeds)] == ["start", stitched.folder]
    assert starts_of(DESIGN, STITCHED, 1) == (stitched,)


def test_the_digest_of_a_start_is_that_of_the_changes_alone() -> None:
    other = replace(DESIGN, shared=SHARED | {"credit": {"step_weight": 0.0}})
    assert starts_of(other, STITCHED, 0)[0].folder == starts_of(DESIGN, STITCHED, 0)[0].folder


def test_every_seed_may_have_a_start_of_its_own_on_the_same_tasks() -> None:
    design = replace(DESIGN, start_per_seed=True)
    tasks, start = starts_of(design, REAL, 1)
    assert (tasks.folder, tasks.models, tasks.params["seed"]) == ("start-tasks", False, 7)
    assert (start.folder, start.tasks_of, start.params["seed"]) == ("start-seed1", "start-tasks", 1)
    folders = [one.folder for one in needed_starts(design, [REAL], design.seeds)]
    assert folders == ["start-tasks", "start-seed0", "start-seed1"]


def stages(folder: Path) -> set[str]:
    return set(yaml.safe_load((folder / "dvc.yaml").read_text())["stages"])


def test_the_tasks_of_a_seed_are_linked_and_not_made(tmp_path: Path) -> None:
    design = replace(DESIGN, start_per_seed=True)
    tasks, start = starts_of(design, REAL, 1)
    first = make_start(tmp_path, tasks)
    assert "make-tasks" in stages(first) and not stages(first) & {"init-model", "warm-start", "evaluate", "report"}
    for name in TASKS:
        pool = artifact(first / RUN, name, 0)
        pool.mkdir(parents=True)
        (pool / "part").write_text(name)
    second = make_start(tmp_path, start)
    assert "make-tasks" not in stages(second) and {"init-model", "warm-start", "evaluate"} <= stages(second)
    assert [(artifact(second / RUN, name, 0) / "part").read_text() for name in TASKS] == list(TASKS)
    assert yaml.safe_load((second / "params.yaml").read_text())["seed"] == 1


def test_a_start_for_all_seeds_makes_everything(tmp_path: Path) -> None:
    start = Start(folder="start", params=SHARED)
    assert make_start(tmp_path, start) == start_folder(tmp_path) == tmp_path / "start"
    assert {"make-tasks", "init-model", "warm-start", "evaluate"} <= stages(tmp_path / "start")


def test_a_start_that_teaches_the_judge_otherwise_has_the_policy_of_the_plain_one(tmp_path: Path) -> None:
    weak = arm("weak", warm_start={"reward": {"steps": 3}, "alike": 0})
    [start] = starts_of(DESIGN, weak, 0)
    [of_seed] = starts_of(replace(DESIGN, start_per_seed=True), weak, 1)[1:]
    assert (start.policy_of, of_seed.policy_of) == ("start", "start-seed1")
    policy, judge = (set(warm_start.SECTIONS[name]) for name in ("policy", "rm"))
    assert {f"warm_start.{key}" for key in JUDGES_LESSONS} <= judge - policy
    prompt = arm("prompt", judge={"prompt": "published"})
    assert starts_of(DESIGN, prompt, 0)[0].policy_of is None
    for other in (
        arm("lessons", warm_start={"policy": {"steps": 3}}),
        arm("both", warm_start={"alike": 0, "scenes": 4}),
    ):
        assert starts_of(DESIGN, other, 0)[0].policy_of is None
    assert starts_of(DESIGN, REAL, 0)[0].policy_of is None

    made = artifact(make_start(tmp_path, start) / RUN, "first_policy", 0)
    assert not made.exists()  # the plain one has none yet
    plain = artifact(tmp_path / "start" / RUN, "first_policy", 0)
    plain.mkdir(parents=True)
    (plain / MANIFEST).write_text("{}")
    make_start(tmp_path, start)
    assert (made / MANIFEST).samefile(plain / MANIFEST)
    (plain / MANIFEST).unlink()
    (plain / MANIFEST).write_text("another")
    make_start(tmp_path, start)
    assert (made / MANIFEST).read_text() == "{}"  # what is there is the stage's to judge


def whole_start(root: Path) -> None:
    for name in SHARED_FILES:
        place = artifact(root / "start" / RUN, name, 0)
        place.mkdir(parents=True, exist_ok=True)
        (place / "file").write_text(name)


def test_a_curated_arm_trains_on_what_its_start_sometimes_solves(tmp_path: Path) -> None:
    curated = replace(REAL, name="curated", curated=True)
    design = replace(DESIGN, arms=(REAL, curated))
    whole_start(tmp_path)
    folder = make_arm(tmp_path, design, curated, 1)
    stages = yaml.safe_load((folder / "dvc.yaml").read_text())["stages"]
    assert not artifact(folder / RUN, "train_tasks", 0).exists()  # `curate` makes it
    assert (folder / RAW / "file").read_text() == "train_tasks"
    assert "--tasks run/raw/pool" in stages["play-pool"]["cmd"]
    assert stages["curate"]["cmd"].endswith("--seed 7 --overwrite --curate run/curation/trajectories")
    plain = make_arm(tmp_path, design, REAL, 1)
    assert "curate" not in yaml.safe_load((plain / "dvc.yaml").read_text())["stages"]
    assert (artifact(plain / RUN, "train_tasks", 0) / "file").exists()


def test_an_arm_with_own_tasks_begins_where_the_others_do(tmp_path: Path) -> None:
    narrow = Arm(name="narrow", title="", changes={"tasks": {"kinds": ["pick"]}}, own_tasks=True)
    assert start_changes(DESIGN, narrow) == {}
    whole_start(tmp_path)
    folder = make_arm(tmp_path, replace(DESIGN, arms=(REAL, narrow)), narrow, 1)
    made = yaml.safe_load((folder / "dvc.yaml").read_text())["stages"]["own-tasks"]
    assert made["cmd"].endswith("--split train --seed 7 --overwrite")
    assert list(made["outs"][0]) == [str(artifact(RUN, "train_tasks", 0))]
    assert yaml.safe_load((folder / "params.yaml").read_text())["tasks"] == {"kinds": ["pick"]}
    assert not artifact(folder / RUN, "train_tasks", 0).exists()
    assert (artifact(folder / RUN, "test_tasks", 0) / "file").exists()  # that of the start
