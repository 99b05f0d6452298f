"""What is removed of old checkpoints, and what never is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rla.cli.app import run as rla
from rla.config.sections import CheckpointsConfig
from rla.errors import UserError
from rla.models.checkpoint import model_folder, open_checkpoint, pruned_parts
from rla.pipeline.finished import (
    planned_evaluations,
    prune_run,
    unneeded_parts,
)
from rla.store.layout import artifact
from rla.text import readable_bytes
from rla.training.checkpoints import open_to_train
from tests.unit.builders import configured
from tests.unit.pipeline.run_records import evaluate, finished_run, parts, record

ALL = ("state", "model", "adapter")
BOTH = ["model", "state"]


def test_the_rule_by_hand() -> None:
    config = CheckpointsConfig(keep=2, export_every=3)
    found = {i: unneeded_parts(i, config, finished=9, awaited=i == 5) for i in range(10)}
    whole, exported, nothing = (), ("state",), ALL
    assert found == {
        0: whole,  # the start
        1: nothing,
        2: nothing,
        3: exported,
        4: nothing,
        5: exported,  # an evaluation is to come
        6: exported,
        7: nothing,
        8: whole,  # of the last two
        9: whole,
    }


def test_without_a_number_to_keep_all_stay() -> None:
    config = CheckpointsConfig(keep=0)
    assert not any(unneeded_parts(i, config, finished=9, awaited=False) for i in range(10))


def test_old_weights_go_and_records_stay(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "r", 4)
    gone = prune_run(run, configured("checkpoints.keep=1"))
    assert parts(run) == parts(run, "rm") == {0: BOTH, 1: [], 2: [], 3: [], 4: BOTH}
    assert [(one.parts, one.freed) for one in gone] == [(("state", "model"), 140)] * 6
    assert sorted(path.name for path in artifact(run, "policy", 2).iterdir()) == [
        *("checkpoint.json", "metrics.json", "pruned.json")
    ]
    assert prune_run(run, configured("checkpoints.keep=1")) == []


def test_empty_folders_that_a_killed_removal_has_left_go(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "r", 3)
    config = configured("checkpoints.keep=1")
    prune_run(run, config)
    left = artifact(run, "policy", 1) / "model/nested"
    left.mkdir(parents=True)
    assert [(one.parts, one.freed) for one in prune_run(run, config)] == [(("model",), 0)]
    assert not left.parent.exists()


def test_what_the_next_iteration_still_needs_stays(tmp_path: Path) -> None:
    """Iteration 4 has begun: its policy is there and its reward model is not, which is made from that of 3."""
    run = finished_run(tmp_path / "r", 4)
    (artifact(run, "rm", 4) / "checkpoint.json").unlink()
    prune_run(run, configured("checkpoints.keep=1"))
    assert parts(run, "rm") == {0: BOTH, 1: [], 2: [], 3: BOTH, 4: BOTH}


def test_a_run_that_is_worked_through_again_keeps_what_it_will_read(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "r", 6)
    record(run, "policy", 1, salt="changed")
    assert prune_run(run, configured("checkpoints.keep=1")) == []


def test_a_planned_evaluation_keeps_the_export_until_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = finished_run(Path("r"), 4)
    Path("iterations.yaml").write_text("run: r\nevaluations: [0, 2, 4]\n")
    prune_run(run, configured("checkpoints.keep=1"))
    assert parts(run) == {0: BOTH, 1: [], 2: ["model"], 3: [], 4: BOTH}
    evaluate(run, 2)
    prune_run(run, configured("checkpoints.keep=1"))
    assert parts(run)[2] == []


def test_the_plan_of_another_run_says_nothing(tmp_path: Path) -> None:
    plan = tmp_path / "iterations.yaml"
    assert planned_evaluations(plan, tmp_path / "r") == set()
    plan.write_text(f"run: {tmp_path / 'other'}\nevaluations: [2]\n")
    assert planned_evaluations(plan, tmp_path / "r") == set()


def test_a_removal_that_was_killed_is_ended_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between its parts, the checkpoint is marked, refused, and gone after the next call."""
    run, config = finished_run(tmp_path / "r", 2), configured("checkpoints.keep=1")
    rmtree = shutil.rmtree

    def killed(path: Path) -> None:
        if path.name == "model":
            raise KeyboardInterrupt
        rmtree(path)

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        prune_run(run, config)
    monkeypatch.undo()
    assert parts(run) == {0: BOTH, 1: ["model"], 2: BOTH}
    assert pruned_parts(artifact(run, "policy", 1)) == set(ALL)
    prune_run(run, config)
    assert parts(run) == parts(run, "rm") == {0: BOTH, 1: [], 2: BOTH}


def test_whoever_reads_what_was_pruned_is_told(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "r", 4)
    prune_run(run, configured("checkpoints.keep=1", "checkpoints.export_every=2"))
    without_state, without_model = artifact(run, "policy", 2), artifact(run, "policy", 1)
    assert open_checkpoint(without_state).state is None
    assert model_folder(without_state) == without_state / "model"
    with pytest.raises(UserError, match="2/policy: its state/ was pruned to save space; take a later checkpoint"):
        open_to_train(without_state)
    for read in (open_to_train, open_checkpoint, model_folder):
        with pytest.raises(UserError, match="1/policy: its model/ was pruned"):
            read(without_model)


def test_the_error_names_the_command_that_makes_a_pruned_checkpoint_again(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "a run", 5)
    prune_run(run, configured("checkpoints.keep=1"))
    with pytest.raises(UserError) as caught:
        model_folder(artifact(run, "rm", 1))
    again = f"rla train-rm --run '{run}' --iteration 1 --set checkpoints.keep=0"
    assert f"or make it again with `rm -r '{run}'/1/rm && {again}`" in str(caught.value)
    with pytest.raises(UserError) as caught:
        model_folder(artifact(run, "policy", 3))
    assert f"`for i in $(seq 1 3); do rm -r '{run}'/$i/policy && rla train-policy --run '{run}' --iteration $i" in str(
        caught.value
    )
    elsewhere = artifact(run, "policy", 3).rename(tmp_path / "copy")
    with pytest.raises(UserError, match=r"take a later checkpoint \(checkpoints.keep"):
        model_folder(elsewhere)


def test_an_adapter_stays_where_its_model_does(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "r", 3)
    for number in (1, 2):
        (artifact(run, "policy", number) / "adapter").mkdir()
        (artifact(run, "policy", number) / "adapter/adapter_model.safetensors").write_bytes(b"a")
    prune_run(run, configured("checkpoints.keep=1", "checkpoints.export_every=2"))
    assert (artifact(run, "policy", 2) / "adapter/adapter_model.safetensors").exists() and parts(run)[2] == ["model"]
    assert parts(run)[1] == [] and not (artifact(run, "policy", 1) / "adapter").exists()


def test_linked_files_count_once(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "r", 3)
    weights = [artifact(run, "policy", number) / "model/weights.safetensors" for number in (1, 2)]
    weights[1].unlink()
    os.link(*weights)
    gone = prune_run(run, configured("checkpoints.keep=1"), dry_run=True)
    assert [one.freed for one in gone] == [130, 140, 130, 140]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1234, "1.23 kB"), (107e9, "107 GB"), (999.6e9, "1 TB"), (43.4e12, "43.4 TB")],
)
def test_readable_bytes(count: float, text: str) -> None:
    assert readable_bytes(count) == text


def test_a_file_that_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished_run(tmp_path / "r", 2)

    def refused(name: str, **_: object) -> None:
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr(os, "unlink", refused)
    with pytest.raises(UserError, match=r"weights\.safetensors: cannot be removed \(Permission denied\)"):
        prune_run(run, configured("checkpoints.keep=1"))


def test_the_command_says_what_would_go_and_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = finished_run(Path("r"), 3)
    Path("params.yaml").write_text("checkpoints: {keep: 2}\n")
    assert rla(["prune", "--run", "r", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "r/1/policy: state, model would go, 140 B",
        "r/1/rm: state, model would go, 140 B",
        "2 checkpoints, 280 B would go; 3 iterations are finished (r/4/policy is not there yet), "
        "the last 2 of them stay",
    ]
    assert parts(run)[1] == BOTH
    assert rla(["prune", "--run", "r"]) == 0
    assert "2 checkpoints, 280 B gone" in capsys.readouterr().out
    assert parts(run) == {0: BOTH, 1: [], 2: BOTH, 3: BOTH}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--run", "none"], 2, "none: no such run"),
        (["--run", "r", "--set", "checkpoints.keep=0"], 0, "nothing goes: checkpoints.keep is 0"),
        (["--run", "r", "--set", "checkpoints.keep=-1"], 2, "checkpoints.keep is -1; it must be 0 or more"),
    ],
)
def test_the_command_with_odd_arguments(
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    finished_run(Path("r"), 3)
    assert rla(["prune", *arguments]) == code
    said = capsys.readouterr()
    assert message in said.out + said.err
