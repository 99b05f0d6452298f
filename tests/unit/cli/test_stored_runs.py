"""Commands on a run by URL: what they refuse, fetch, and leave alone; on a store in memory."""

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from rla.cli.app import run
from rla.mirroring.mirror import Mirror
from rla.mirroring.urls import mirror_folder

URL = "memory://bucket/run"
TIMES = '{"stage": "rollout", "iteration": 1, "calls": [{"started": "2026-01-01T00:00:00+00:00", "seconds": 2.0, '
TIMES += '"made": true, "origin": "a", "host": "a"}]}'


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fsspec.AbstractFileSystem]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pipe_file("/bucket/run/timings/1-rollout.json", TIMES.encode())
    files.pipe_file("/bucket/run/1/scores/part-00000.parquet", b"x")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLA_MIRRORS", raising=False)
    yield files
    files.store.clear()


def fetched() -> set[str]:
    return set(Mirror(URL).present())


def test_a_timeline_fetches_times_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["timeline", URL, "--json"]) == 0
    assert '"rollout"' in capsys.readouterr().out and fetched() == {"timings/1-rollout.json"}


def test_a_dry_run_of_pruning_changes_nothing_on_the_store(files: fsspec.AbstractFileSystem) -> None:
    unsent = mirror_folder(URL) / "1/scores/part-00001.parquet"
    unsent.parent.mkdir(parents=True)
    unsent.write_bytes(b"y")
    before = set(files.find("/bucket"))
    assert run(["prune", "--run", URL, "--dry-run"]) == 0
    assert set(files.find("/bucket")) == before and "1/scores/part-00000.parquet" in fetched()
    assert run(["prune", "--run", URL]) == 0
    assert set(files.find("/bucket")) == {*before, "/bucket/run/1/scores/part-00001.parquet"}


def test_a_judge_that_trains_on_earlier_votes_fetches_them(files: fsspec.AbstractFileSystem) -> None:
    for iteration in (1, 2, 3):
        for name in ("scores", "rewards/rm", "rewards/policy"):
            files.pipe_file(f"/bucket/run/{iteration}/{name}/part-00000.parquet", b"x")
    call = ["train-rm", "--run", URL, "--iteration", "3", "--env", "alfworld", "--dry-run"]
    second = {"2/scores/part-00000.parquet", "2/rewards/rm/part-00000.parquet"}
    for replay, wanted in ((0, set()), (1, second)):
        assert run([*call, "--set", f"train_rm.replay={replay}"]) == 0
        assert {name for name in fetched() if name.startswith("2/")} == wanted
