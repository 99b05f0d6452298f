"""Checkpoints that a stage finds where it is to write: kept, refused or replaced, and nothing else is removed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rla import __version__
from rla.errors import UserError
from rla.store.atomic import take_place
from rla.store.manifest import record_files, sealed, write_records
from rla.training.checkpoints import checkpoint_file, finished_checkpoint

OURS, OTHER = {"origin": {"seed": 1}}, {"origin": {"seed": 2}}


def checkpoint(folder: Path) -> Path:
    for name in ("model/config.json", "model/a/b.json", "state/weights.safetensors", "metrics.json", "metrics.jsonl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    (folder / "checkpoint.json").write_text(json.dumps({"rla": __version__, "digest": "d", **OURS}))
    return folder


def test_one_of_this_origin_is_kept_and_one_of_another_replaced_on_demand(tmp_path: Path) -> None:
    out = checkpoint(tmp_path / "policy")
    assert finished_checkpoint(out, OURS, overwrite=True)
    with pytest.raises(UserError, match="a checkpoint made with seed 1, this call has 2; rerun with"):
        finished_checkpoint(out, OTHER, overwrite=False)
    assert not finished_checkpoint(out, OTHER, overwrite=True)
    assert finished_checkpoint(out, OURS, overwrite=False)  # there until the new one is complete


def test_a_folder_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "precious/data").mkdir(parents=True)
    (tmp_path / "precious/thesis.md").write_text("years of work")
    with pytest.raises(UserError, match="precious exists already"):
        finished_checkpoint(tmp_path / "precious", OURS, overwrite=True)
    assert (tmp_path / "precious/thesis.md").exists()


def test_a_checkpoint_with_anything_else_in_it_is_left_as_it_is(tmp_path: Path) -> None:
    out = checkpoint(tmp_path / "policy")
    (out / "notes").mkdir()
    (out / "notes/thesis.md").write_text("years of work")
    with pytest.raises(UserError, match=r"policy: holds what rla did not write \(thesis\.md\)"):
        finished_checkpoint(out, OTHER, overwrite=True)
    assert len([path for path in out.rglob("*") if path.is_file()]) == 7


def test_a_file_of_somebody_else_among_the_weights_is_left_as_it_is(tmp_path: Path) -> None:
    out = checkpoint(tmp_path / "policy")
    write_records(out, {name: one for name, one in record_files(out).items() if "/" in name})
    assert not finished_checkpoint(out, OTHER, overwrite=True)
    (out / "model/thesis.md").write_text("years of work")
    with pytest.raises(UserError, match=r"policy: holds what rla did not write \(thesis\.md\)"):
        finished_checkpoint(out, OTHER, overwrite=True)


def test_a_removal_that_is_killed_leaves_nothing_under_the_old_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, unlink, left = checkpoint(tmp_path / "policy"), os.unlink, [3]
    (checkpoint(tmp_path / ".policy.tmp") / "checkpoint.json").write_text(json.dumps({"rla": __version__, **OTHER}))

    def until_killed(path: str, **options: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        unlink(path, **options)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(os, "unlink", until_killed)
        take_place(tmp_path / ".policy.tmp", out, checkpoint_file(out))
    assert finished_checkpoint(out, OTHER, overwrite=False)
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_a_damaged_record_is_replaced_on_demand(tmp_path: Path) -> None:
    out = checkpoint(tmp_path / "policy")
    text = json.dumps(sealed({"rla": __version__, "updates": 3, "digest": "d", **OURS}))
    (out / "checkpoint.json").write_text(text.replace('"updates": 3', '"updates": 2'))
    with pytest.raises(UserError, match="changed since it was written"):
        finished_checkpoint(out, OURS, overwrite=False)
    assert not finished_checkpoint(out, OURS, overwrite=True)
    (out / "checkpoint.json").write_text("{ of somebody else")
    with pytest.raises(UserError, match="not valid JSON"):
        finished_checkpoint(out, OURS, overwrite=True)
