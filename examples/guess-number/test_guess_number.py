"""Run with `pytest` where rla, rla-study and this package are installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from guess_number import Game, GuessNumber, GuessTables, guess
from rla_study.contract import check_environment

from rla.envs.protocols import RejectedEdit
from rla.envs.registry import load_config
from rla.report.collect import RunSummary

CONFIG = load_config(None, ["env.name=guess-number", "env.max_steps=6"])
ENV = GuessNumber()
TASK = ENV.tasks(CONFIG, split="train", seed=0)[0]


def test_binary_search_wins() -> None:
    rules = json.loads(TASK.payload)
    game = Game(TASK)
    assert game.reset().text == f"Guess my number, from 1 to {rules['high']}."
    shown = ENV.play_expert(TASK, CONFIG, seed=0)
    answers = [game.step(action) for action in shown.actions]
    assert [answer.text for answer in answers[:-1]] == shown.observations[1:]
    assert answers[-1].won and shown.won


def test_a_hint_halves_the_range() -> None:
    (edit, *_) = ENV.propose(TASK, direction="easier", seed=0, count=1)
    child = ENV.apply(TASK, edit, root=TASK, taken=(), created=1)
    assert len(Game(child).commands) <= len(Game(TASK).commands) / 2 + 1
    assert (child.slot, child.parent_id) == (TASK.slot, TASK.task_id)


@pytest.mark.parametrize("edit", ["{}", '{"low": 1, "high": 2}', '{"low": 1, "high": 1e3}', '{"low": true, "high": 9}'])
def test_a_range_that_is_none_is_refused(edit: str) -> None:
    with pytest.raises(RejectedEdit):
        ENV.apply(TASK, edit, root=TASK, taken=(), created=1)


def test_the_share_of_valid_guesses_is_measured_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = [{"steps": [{"valid": True}, {"valid": True}]}, {"steps": [{"valid": False}, {"valid": True}]}]
    monkeypatch.setattr("guess_number.stream_rows", lambda *_: iter(played))
    assert GuessTables().measure(tmp_path, CONFIG, held_out=[]) == {"guesses_valid": 0.75}
    rows = ({"iteration": 1, "guesses_valid": 0.75}, {"iteration": 2})
    (table,) = GuessTables().tables(RunSummary(run=tmp_path, iterations=rows, evaluations=(), seconds={}, gain=None))
    assert table.rows == (("1", "75.0%"),)


def test_runs_of_other_environments_are_left_alone(tmp_path: Path) -> None:
    assert GuessTables().measure(tmp_path, load_config(None, ["env.name=alfworld"]), held_out=[]) == {}


def test_it_keeps_the_contract() -> None:
    assert [finding for finding in check_environment(ENV, CONFIG) if not finding.ok] == []


def test_a_game_in_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    guesses = iter([str(number) for number in range(1, 22)])
    monkeypatch.setattr("builtins.input", lambda _: next(guesses))
    guess(seed=3)
    first, *answers = capsys.readouterr().out.splitlines()
    assert first == "Guess my number, from 1 to 21."
    assert set(answers[:-1]) <= {"higher"} and answers[-1] == "right"
