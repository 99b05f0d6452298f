"""Shards of a fixed seed and of scripted replies stay as they are: what a stage writes does not change by accident.

Every row of every shard of an ALFWorld and of a coding run is digested as JSON and compared with `golden.json`. The
column `policy` is left out, because it is a digest of the checkpoint's own record. After a change that is meant to
change rows, write the file anew with `python -m tests.integration.golden`.

The same two runs are then shown by `rla show`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rla.store.reading import read_rows
from tests.integration.conftest import Rla
from tests.integration.golden import GOLDEN, SCRIPTS


@pytest.fixture(scope="module", params=SCRIPTS)
def scripted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The name of a script, and the folder in which it was played."""
    folder, before = tmp_path_factory.mktemp(request.param), Path.cwd()
    os.chdir(folder)
    try:
        (folder / "digests.json").write_text(json.dumps(SCRIPTS[request.param](folder)))
        yield request.param, folder
    finally:
        os.chdir(before)


def test_a_scripted_iteration_writes_the_recorded_rows(scripted: tuple[str, Path]) -> None:
    name, folder = scripted
    assert json.loads((folder / "digests.json").read_text()) == json.loads(GOLDEN.read_text())[name]


def test_its_episodes_can_be_shown(
    scripted: tuple[str, Path], rla: Rla, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name, folder = scripted
    monkeypatch.chdir(folder)
    run = ("show", "--run", "r")
    code, said, error = rla(*run)
    assert (code, error) == (0, "") and "iteration 2" in said  # the last that was played
    rows = read_rows(folder / "r/1/trajectories", "trajectories")
    row = next(row for row in rows if row["steps"])
    for option, value in (("--episode", row["trajectory_id"]), ("--task", row["task_id"][:10])):
        code, said, error = rla(*run, "--iteration", "1", option, value)
        assert (code, error) == (0, "")
        assert row["trajectory_id"] in said and "vote" in said and "advantage" in said and "R " in said
    page = tmp_path / "page.html"
    code, said, error = rla(*run, "--iteration", "1", "--disputed", "3", "--html", str(page))
    assert (code, error) == (0, "") and "votes call the step good" in page.read_text()
    code, said, error = rla(*run, "--iteration", "1", "--worst")
    if name == "alfworld":
        assert code == 0 and "votes call the step good, and it" in said
    else:
        assert code == 2 and "the environment coding does not say which steps helped" in error


def test_what_cannot_be_shown_is_said(scripted: tuple[str, Path], rla: Rla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scripted[1])
    for arguments, said in (
        (("--iteration", "7"), "no episodes of iteration 7"),
        (("--iteration", "2", "--flipped"), "give an earlier --iteration"),
        (("--iteration", "1", "--worst", "--best"), "give one of them"),
        (("--iteration", "1", "--episode", "nowhere"), "there is none"),
        (("--split", "elsewhere"), "not a held-out split"),
        (("--split", "test", "--iteration", "0", "--flipped"), "nothing was played after iteration 0"),
    ):
        code, _, error = rla("show", "--run", "r", *arguments)
        assert code == 2 and said in error, (arguments, error)
