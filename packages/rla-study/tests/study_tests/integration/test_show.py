"""`rla show` on a scripted run of ALFWorld: its episodes, its steps and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.store.reading import read_rows
from tests.integration.conftest import Rla, rla_in, stages
from tests.integration.pipelines import PARAMS

LOOP = ("rollout", "validate-tasks", "score-steps", "compute-rewards", "train-policy", "train-rm", "adapt-env")


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One iteration, and the episodes of the next one."""
    folder = tmp_path_factory.mktemp("alfworld")
    with rla_in(folder, PARAMS) as rla:
        stages(rla, "make-tasks", "init-model", "warm-start", *LOOP)
        stages(rla, "rollout", **{"--iteration": "2"})
    return folder


def assert_episodes_are_shown(folder: Path, rla: Rla) -> None:
    """By their own name, by their task's, and as a page."""
    run = ("show", "--run", "r")
    code, said, error = rla(*run)
    assert (code, error) == (0, "") and "iteration 2" in said  # the last that was played
    rows = read_rows(folder / "r/1/trajectories", "trajectories")
    row = next(row for row in rows if row["steps"])
    for option, value in (("--episode", row["trajectory_id"]), ("--task", row["task_id"][:10])):
        code, said, error = rla(*run, "--iteration", "1", option, value)
        assert (code, error) == (0, "")
        assert row["trajectory_id"] in said and "vote" in said and "advantage" in said and "R " in said
    code, said, error = rla(*run, "--iteration", "1", "--disputed", "--count", "3", "--html", "page.html")
    assert (code, error) == (0, "") and "votes call the step good" in Path("page.html").read_text()


def test_its_episodes_can_be_shown(scripted: Path, rla: Rla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scripted)
    assert_episodes_are_shown(scripted, rla)
    code, said, _ = rla("show", "--run", "r", "--iteration", "1", "--worst")
    assert code == 0 and "votes call the step good, and it" in said


def test_what_cannot_be_shown_is_said(scripted: Path, rla: Rla, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(scripted)
    for arguments, said in (
        (("--iteration", "7"), "no episodes of iteration 7"),
        (("--iteration", "1", "--worst", "--disputed"), "give one of them"),
        (("--iteration", "1", "--episode", "nowhere"), "there is none"),
        (("--split", "elsewhere"), "not a held-out split"),
    ):
        code, _, error = rla("show", "--run", "r", *arguments)
        assert code == 2 and said in error, (arguments, error)
