"""The folder of logs: only what is new is written, equal shards give equal bytes, files of others stay."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from rla_study.viewing import inspect_folder
from rla_study.viewing.inspect_folder import Following, export_new, new_site

from rla.cli.app import run as call
from rla.errors import UserError
from rla.store.reading import shard_parts
from tests.browser.hostile_run import hostile_run
from tests.unit.builders import configured

Captured = pytest.CaptureFixture[str]
CONFIG = configured()


@pytest.fixture
def played(tmp_path: Path) -> Path:
    pytest.importorskip("inspect_ai", reason="the inspect extra is not installed")
    run = hostile_run(tmp_path / "run", text="x")
    os.utime(run / "1/trajectories/_manifest.parquet", (1_700_000_000, 1_700_000_000))
    return run


def log_of(path: Path) -> Any:
    from inspect_ai.log import read_eval_log

    return read_eval_log(path)


def test_what_is_new_is_written_once(played: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert export_new(played, CONFIG, out) == ["iteration-0001.eval"]
    first = (out / "iteration-0001.eval").stat()
    assert export_new(played, CONFIG, out) == []
    assert (out / "iteration-0001.eval").stat() == first
    shutil.rmtree(played / "1/scores")
    assert export_new(played, CONFIG, out) == ["iteration-0001.eval"]
    assert set(log_of(out / "iteration-0001.eval").samples[0].scores) == {"outcome"}


def test_a_log_has_every_episode_with_its_votes(played: Path, tmp_path: Path) -> None:
    export_new(played, CONFIG, tmp_path / "out")
    log = log_of(tmp_path / "out/iteration-0001.eval")
    assert (log.status, log.eval.task, log.eval.created) == ("success", "iteration 1", "2023-11-14T22:13:20+00:00")
    assert [(one.epoch, one.scores["outcome"].value) for one in log.samples] == [(1, "C"), (2, "I")]
    facts = log.samples[0].messages[2].metadata
    assert (facts["advantage"], facts["vote_2"]) == (1.25, "-1: because x")
    assert log.samples[0].model_usage["policy"].output_tokens == 2


def test_the_same_shards_give_the_same_bytes(played: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        export_new(played, CONFIG, tmp_path / name)
    one, other = ((tmp_path / name / "iteration-0001.eval").read_bytes() for name in ("a", "b"))
    assert one == other


def test_an_iteration_that_is_being_played_has_the_groups_that_are_finished(played: Path, tmp_path: Path) -> None:
    (played / "1/trajectories/_manifest.parquet").unlink()
    export_new(played, CONFIG, tmp_path / "out")
    log = log_of(tmp_path / "out/iteration-0001.eval")
    assert (log.status, len(log.samples)) == ("started", 2)


def test_a_log_without_shards_goes_and_files_of_others_are_refused(played: Path, tmp_path: Path) -> None:
    shutil.copytree(played / "1", played / "2")
    out = tmp_path / "out"
    export_new(played, CONFIG, out)
    shutil.rmtree(played / "2")
    assert export_new(played, CONFIG, out) == []
    assert sorted(path.name for path in out.iterdir()) == ["exported.json", "iteration-0001.eval"]
    (out / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match=r"mine\.txt"):
        export_new(played, CONFIG, out)


def test_one_iteration_leaves_the_others(played: Path, tmp_path: Path, capsys: Captured) -> None:
    shutil.copytree(played / "1", played / "2")
    words = ["export", "--to", "inspect", "--run", str(played), "--out", str(tmp_path / "out")]
    assert call([*words, "--iteration", "2"]) == 0 and call(words) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["iteration-0001.eval", f"{tmp_path}/out: 1 new log"]
    assert call([*words, "--iteration", "7"]) == 2
    assert "no episodes of iteration 7" in capsys.readouterr().err


def test_the_logs_of_another_run_are_not_replaced(played: Path, tmp_path: Path) -> None:
    other = shutil.copytree(played, tmp_path / "other")
    export_new(played, CONFIG, tmp_path / "out")
    before = (tmp_path / "out/iteration-0001.eval").read_bytes()
    with pytest.raises(UserError, match=r"out: holds the logs of another run than .*other"):
        export_new(other, CONFIG, tmp_path / "out")
    assert (tmp_path / "out/iteration-0001.eval").read_bytes() == before


def test_a_run_is_moved_with_its_logs(played: Path, tmp_path: Path) -> None:
    export_new(played, CONFIG, played / "inspect")
    moved = played.rename(tmp_path / "moved")
    assert export_new(moved, CONFIG, moved / "inspect") == []


def test_a_log_whose_call_was_killed_is_made_again(
    played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = inspect_folder.write_place

    def killed(*given: Any) -> None:
        write(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(inspect_folder, "write_place", killed)
        export_new(played, CONFIG, tmp_path / "out")
    assert export_new(played, CONFIG, tmp_path / "out") == ["iteration-0001.eval"]


def test_a_run_that_has_nothing_yet_is_waited_for(played: Path, tmp_path: Path) -> None:
    said: list[str] = []
    run = tmp_path / "young"
    run.mkdir()
    look = Following(run=run, config=CONFIG, folder=run / "inspect", say=said.append)
    assert look() is None and said == []
    shutil.copytree(played / "1", run / "1")
    assert look() == run / "inspect/iteration-0001.eval"
    with pytest.raises(UserError, match="nothing was played yet"):
        shutil.rmtree(run / "1")
        export_new(run, CONFIG, run / "inspect")


def test_a_shard_that_a_stage_takes_over_is_read_later(
    played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts go, or others come, after they were listed."""
    (played / "1/trajectories/_manifest.parquet").unlink()
    said: list[str] = []
    look = Following(run=played, config=CONFIG, folder=tmp_path / "out", say=said.append)
    monkeypatch.setattr(inspect_folder, "shard_parts", lambda folder: [])
    assert look() is None and "being replaced" in said[-1]
    monkeypatch.setattr(inspect_folder, "token_counts", lambda parts: {})
    monkeypatch.setattr(inspect_folder, "shard_parts", shard_parts)
    assert look() is None and "came while its shard was read" in said[-1]


def test_following_says_once_what_cannot_be_read(played: Path, tmp_path: Path) -> None:
    said: list[str] = []
    look = Following(run=played, config=CONFIG, folder=tmp_path / "out", say=said.append)
    assert look() == tmp_path / "out/iteration-0001.eval" and look() is None
    (played / "1/trajectories/part-00000.parquet").write_bytes(b"")
    (played / "1/trajectories/_manifest.parquet").write_bytes(b"{}")
    assert look() is None and look() is None
    assert len(said) == 2 and said[0] == "new: iteration-0001.eval" and said[1].startswith("not exported: ")


def test_a_missing_extra_is_one_clear_error(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "run").mkdir()
    for words in (["view", str(tmp_path / "run")], ["export", "--run", str(tmp_path / "run")]):
        assert call(words) == 2
        assert "install rla-study[inspect] from a checkout" in capsys.readouterr().err


def test_a_site_replaces_nothing(played: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="exists already"):
        new_site(played)
