"""Commands of this package read a run with its own parameters, and find the newest one, as those of the core do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.cli.app import run as call
from tests.unit.cli.test_run_params import RUN, example, guesses, two_runs

__all__ = ["example", "guesses", "two_runs"]
LOOKING = ("show --run", "view", "export --run", "lineage --run", "compare", "timeline")


@pytest.mark.usefixtures("guesses")
def test_a_run_is_exported_with_its_own_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("inspect_ai", reason="the inspect extra is not installed")
    assert call(["export", "--iteration", "1", "--run", str(RUN)]) == 0, capsys.readouterr().err


@pytest.mark.usefixtures("guesses")
def test_a_run_is_shown_with_its_own_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["show", "--task", "t", "--run", str(RUN)]) == 0, capsys.readouterr().err


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize("words", [["show"], ["show", "--task", "t"], ["lineage"]], ids=" ".join)
def test_without_a_run_the_newest_is_looked_at(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(words) == 0, capsys.readouterr().err
    said = "".join(capsys.readouterr())
    assert "runs/new" in said and "runs/old" not in said


@pytest.mark.usefixtures("two_runs")
@pytest.mark.parametrize("command", LOOKING)
def test_an_error_lists_the_runs_that_there_are(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*command.split(), "runs/x"]) == 2
    assert "runs/x: no such run; stored runs: runs/new, runs/old" in capsys.readouterr().err


@pytest.mark.parametrize("command", LOOKING)
def test_before_the_first_run_there_is_none_to_look_at(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(command.split()[:1]) == 2
    assert "runs holds none yet" in capsys.readouterr().err
