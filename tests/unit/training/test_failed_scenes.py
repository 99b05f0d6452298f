"""An environment that fails now and then costs a warm start the scenes that it fails in, and often the stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rla.cli.progress import make_progress
from rla.config.training import SftConfig
from rla.envs.alfworld.environment import Alfworld
from rla.envs.alfworld.tasks import task_from_game
from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import Demonstration, Labelled
from rla.errors import UserError
from rla.llm.chat import ChatFormat
from rla.pipeline import StageContext
from rla.training import warm_start
from rla.training.warm_start import FailedScenes, policy_examples, reward_examples
from stages import STAGES
from tests.unit.builders import configured
from tests.unit.envs.alfworld import scenes
from tests.unit.llm.test_chat import byte_tokenizer

SPEC = next(spec for spec in STAGES if spec.name == "warm-start")
Make = Callable[..., list[Any]]
TASK = task_from_game(scenes.game(), split="train", scene="kitchen")


class Shaky(Alfworld):
    """Fails in the calls of these numbers, counted from 1."""

    def __init__(self, *, played: tuple[int, ...] = (), labelled: tuple[int, ...] = ()) -> None:
        self.fails = {"demonstrate": played, "label": labelled}
        self.calls = dict.fromkeys(self.fails, 0)

    def count(self, call: str) -> None:
        self.calls[call] += 1
        if self.calls[call] in self.fails[call]:
            raise EnvironmentFailure("the machine is gone")

    def demonstrate(self, *arguments: Any, **options: Any) -> Demonstration:
        self.count("demonstrate")
        return super().demonstrate(*arguments, **options)

    def label(self, *arguments: Any, **options: Any) -> list[list[Labelled]]:
        self.count("label")
        return super().label(*arguments, **options)


@pytest.fixture
def ctx(tmp_path: Path) -> StageContext:
    config = configured("model.context=65536")  # everything fits
    return StageContext(spec=SPEC, stages=STAGES, config=config, run=tmp_path, iteration=0, progress=make_progress())


def made(
    ctx: StageContext, monkeypatch: pytest.MonkeyPatch, env: Shaky, make: Make, *, count: int
) -> tuple[int, FailedScenes]:
    """How many examples are made of `count` scenes, and which scenes failed."""
    monkeypatch.setattr(warm_start, "environment", lambda name: env)
    failed = FailedScenes("judge episodes", count)
    chat = ChatFormat(byte_tokenizer())
    return len(list(make(ctx, chat, [TASK], replace(SftConfig(), examples=count), failed=failed))), failed


def test_a_demonstration_that_fails_is_left_out_and_counted(ctx: StageContext, monkeypatch: pytest.MonkeyPatch) -> None:
    count, failed = made(ctx, monkeypatch, Shaky(played=(3,)), policy_examples, count=10)
    assert (count, failed.count) == (9, 1)


def test_an_episode_that_fails_as_it_is_played_or_labelled_is_not_judged(
    ctx: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, failed = made(ctx, monkeypatch, Shaky(played=(3,), labelled=(5,)), reward_examples, count=20)
    assert (count, failed.count) == (18, 2)


def test_where_more_than_a_tenth_fails_the_stage_ends_and_says_why(
    ctx: StageContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Shaky(played=tuple(range(1, 21)))
    with pytest.raises(UserError, match=r"3 of 20 judge episodes .* 10%.* the machine is gone\. Mend"):
        made(ctx, monkeypatch, gone, reward_examples, count=20)
    assert gone.calls["demonstrate"] == 3  # each failure may cost a minute


def test_failures_of_both_kinds_add_up(ctx: StageContext, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="2 of 10"):
        made(ctx, monkeypatch, Shaky(played=(1,), labelled=(1,)), reward_examples, count=10)
