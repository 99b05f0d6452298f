"""What `check_environment` says of episodes that are each broken in one way."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rla_study.contract.subject import MARK

from rla.config import Config
from rla.config.sections import PoolConfig
from rla.envs.observation import EnvironmentFailure, Observation
from rla.errors import UserError
from rla.store.records import Task
from study_tests.contract.broken import (
    Game,
    broken,
    complaints_of,
    config_of,
    the_only_complaint,
    with_game,
    with_members,
)

# Episodes.


def answering(**changes: Any) -> Any:
    """Every answer of a step has these changes."""
    return with_game(step=lambda game, action: replace(Game.step(game, action), **changes))


ANSWERS: list[tuple[str, dict[str, Any], str]] = [
    ("text", {"text": b"higher"}, "text is b'higher'"),
    ("text that no file holds", {"text": "\udcff"}, "UTF-8"),
    ("commands as a text", {"commands": "1"}, "commands is '1'"),
    ("the same command twice", {"commands": ("1", "1")}, "offered twice"),
    ("an empty command", {"commands": ("1", "")}, "a command is empty"),
    ("won without done", {"won": True, "done": False}, "won is set without done"),
    ("done as a number", {"done": 1}, "done is 1"),
    ("no number as a reward", {"reward": float("nan")}, "reward is nan"),
    ("no picture", {"images": (b"GIF89a",)}, "not a PNG file"),
]


@pytest.mark.parametrize(("changes", "complaint"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS])
def test_broken_answers(changes: dict[str, Any], complaint: str) -> None:
    assert complaint in the_only_complaint(answering(**changes))


def test_an_answer_that_is_a_tuple() -> None:
    env = with_game(step=lambda game, action: (Game.step(game, action), 0.0))
    assert "which is not an Observation" in the_only_complaint(env)


def test_rewards_and_pictures_that_are_right() -> None:
    picture = b"\x89PNG\r\n\x1a\n..."
    assert broken(answering(reward=0.5, images=(picture,))) == {}


def test_answers_by_a_global_generator() -> None:
    env = with_game(reset=lambda game: replace(Game.reset(game), text=f"Guess, {random.random()}."))
    complaints_of(env, "played again, after reset, text was", "draw from a random.Random of the task")


def test_state_that_episodes_share() -> None:
    heard: list[str] = []

    def step(game: Any, action: str) -> Observation:
        heard.append(action)
        return replace(Game.step(game, action), text=f"{len(heard)}")

    complaints_of(with_game(step=step), "share no state between episodes")


def test_a_reset_that_goes_on() -> None:
    def reset(game: Any) -> Observation:
        game.left, game.over = getattr(game, "left", list(game.commands)), False
        return Observation(text=f"{len(game.left)} are left.", commands=game.commands)

    complaints_of(with_game(reset=reset), "forget in reset what was done before")


def test_an_episode_that_begins_anew_after_its_end() -> None:
    def step(game: Any, action: str) -> Observation:
        return Game.reset(game) if game.over else Game.step(game, action)

    assert "a step after the end" in the_only_complaint(with_game(step=step))


def test_a_step_after_the_end_that_hangs() -> None:
    def step(game: Any, action: str) -> Observation:
        while game.over:
            time.sleep(0.01)
        return Game.step(game, action)

    env = with_game(step=step)
    assert "it must not hang" in the_only_complaint(env, config_of(env, pool=PoolConfig(step_deadline_s=0.3)))


def test_a_command_that_is_offered_and_refused() -> None:
    def step(game: Any, action: str) -> Observation:
        if action in game.commands and game.left == list(game.commands):
            raise EnvironmentFailure("not now")
        return Game.step(game, action)

    complaints_of(with_game(step=step), "the offered command", "offer what is possible")


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        (lambda action: int(action), "no text ('') raised ValueError"),
        (lambda action: action.encode(), "raised UnicodeEncodeError"),
        (lambda action: json.loads(action) if action[:1] == "[" else 0, "raised RecursionError"),
        (lambda action: Path(action).exists(), "raised"),
        (lambda action: action.format(1), "raised"),
    ],
)
def test_actions_that_are_not_read_as_data(fault: Callable[[str], Any], complaint: str) -> None:
    def step(game: Any, action: str) -> Observation:
        if action not in game.commands:
            fault(action)
        return Game.step(game, action)

    assert complaint in the_only_complaint(with_game(step=step))


def test_a_shell_that_runs_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    monkeypatch.chdir(tmp_path)

    def step(game: Any, action: str) -> Observation:
        if MARK in action:
            subprocess.run(action, shell=True, stderr=subprocess.DEVNULL, check=False)
        return Game.step(game, action)

    assert "never hand a model's text to one" in the_only_complaint(with_game(step=step))


def test_an_action_that_is_unknown_and_ends_all_offers() -> None:
    def step(game: Any, action: str) -> Observation:
        answer = Game.step(game, action)
        return answer if action in game.commands else replace(answer, commands=())

    assert "no command is offered any more" in the_only_complaint(with_game(step=step))


def test_a_failure_where_a_reply_has_no_action() -> None:
    def step(game: Any, action: str) -> Observation:
        if action not in game.commands:
            raise EnvironmentFailure("no such number")
        return Game.step(game, action)

    assert "answer that nothing happens" in the_only_complaint(with_game(step=step))


def test_a_print(capsys: pytest.CaptureFixture[str]) -> None:
    def step(game: Any, action: str) -> Observation:
        print("stepped")
        return Game.step(game, action)

    assert "it printed 'stepped" in the_only_complaint(with_game(step=step))
    assert capsys.readouterr().out == ""


def test_an_environment_that_cannot_be_made_here() -> None:
    def make(self: Any, task: Task, config: Config) -> Any:
        raise UserError("install the game")

    with pytest.raises(UserError, match="install the game"):
        broken(with_members(make=make))


def test_environments_that_answer_later() -> None:
    class Later(Game):
        async def reset(self) -> Observation:
            return Game.reset(self)

        async def step(self, action: str) -> Observation:
            return Game.step(self, action)

    assert broken(with_members(make=lambda self, task, config: Later(task))) == {}


def test_an_answer_that_never_comes() -> None:
    class Silent(Game):
        async def step(self, action: str) -> Observation:
            await asyncio.Event().wait()
            raise AssertionError

    env = with_members(make=lambda self, task, config: Silent(task))
    config = config_of(env, pool=PoolConfig(step_deadline_s=0.3))
    assert "no answer within 0.3 s" in the_only_complaint(env, config)
