"""Commands that only look at a run read it with its own parameters, wherever they are called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rla.cli.app import run as call
from rla.config import resolved
from rla.pipeline.plan import run_and_params
from rla.store.layout import resource
from rla.store.manifest import write_run_config
from rla.store.shards import write_shard
from tests.browser.hostile_run import COUNTS, ORIGIN
from tests.unit.builders import configured, install, score, task, trajectory

EXAMPLE = resource("examples/guess-number")
ENV = "guess-number"
NUMBER = task("t", env=ENV, payload='{"low": 1, "high": 4, "secret": 2}')
RUN = Path("other/run")


@pytest.fixture
def example(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example environment is installed: another one than that of the packaged small run."""
    site = tmp_path_factory.mktemp("site")
    install(site, "guess-number", "0.1.0", f"[rla.envs]\n{ENV} = guess_number:GuessNumber\n")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(site))


@pytest.fixture
def guesses(example: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of the example, whose tasks are not ALFWorld's, below a folder without a params.yaml."""
    monkeypatch.chdir(tmp_path)
    write_run_config(RUN, resolved(configured(env=ENV)))
    write_shard(RUN / "0/pool", "tasks", [NUMBER.row()], ORIGIN)
    write_shard(RUN / "1/trajectories", "trajectories", [trajectory("e", task_id="t").row()], ORIGIN, counts=COUNTS)
    write_shard(RUN / "1/scores", "scores", [score("e", task_id="t").row()], ORIGIN)


@pytest.mark.usefixtures("guesses")
@pytest.mark.parametrize("words", [["report"], ["judge-accuracy"]], ids=" ".join)
def test_a_run_is_read_with_its_own_parameters(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*words, "--run", str(RUN)]) == 0, capsys.readouterr().err


@pytest.mark.usefixtures("guesses")
def test_parameters_that_are_named_are_those_that_count() -> None:
    own = RUN / "config.yaml"
    assert run_and_params(RUN, None) == (RUN, own)
    assert run_and_params(RUN, Path("mine.yaml")) == (RUN, Path("mine.yaml"))
    assert run_and_params(RUN, None, "alfworld") == (RUN, resource("params.yaml"))
    assert run_and_params(RUN, None, ENV) == (RUN, own)
    assert run_and_params(Path("new"), None) == (Path("new"), resource("params.yaml"))


def stored(run: str, seconds: int, *overrides: str) -> Path:
    """A run on which a stage has last worked at that time."""
    place = Path("runs") / run
    write_run_config(place, resolved(configured(*overrides, env=ENV)))
    os.utime(place / "config.yaml", (seconds, seconds))
    write_shard(place / "0/pool", "tasks", [NUMBER.row()], ORIGIN)
    write_shard(place / "1/trajectories", "trajectories", [trajectory("e", task_id="t").row()], ORIGIN, counts=COUNTS)
    return place


@pytest.fixture
def two_runs(example: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored("old", 1000)
    stored("new", 2000)
    (tmp_path / "runs/ablation").mkdir()  # holds runs and is not one


@pytest.mark.usefixtures("two_runs")
def test_without_a_run_the_newest_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["report"]) == 0, capsys.readouterr().err
    said = "".join(capsys.readouterr())
    assert "runs/new" in said and "runs/old" not in said


LOOKING = ("prune --run", "report --run")


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


@pytest.mark.usefixtures("two_runs")
def test_a_stage_on_a_named_run_has_its_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    stored("five", 1, "judge.votes=5")
    assert call(["score-steps", "--run", "runs/five", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "votes: 5" in said and "note" not in said


@pytest.mark.usefixtures("two_runs")
def test_a_call_with_other_parameters_than_its_run_says_which(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["score-steps", "--run", "runs/new", "--set", "judge.votes=9", "--dry-run"]) == 0
    assert "note: runs/new/config.yaml has judge.votes 3, this call has 9" in capsys.readouterr().out


@pytest.mark.usefixtures("two_runs")
def test_a_params_file_of_this_run_that_is_not_read_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("params.yaml").write_text("name: new\nenv: {name: guess-number}\njudge: {votes: 4}\n")
    assert call(["score-steps", "--run", "runs/new", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "note: params.yaml is not read (judge.votes 3, it has 4" in said and "--params params.yaml" in said
    assert call(["score-steps", "--run", "runs/old", "--dry-run"]) == 0
    assert "note" not in capsys.readouterr().out
