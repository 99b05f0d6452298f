"""PlayedEpisode episodes get labels by replay, and only where the replay shows what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rla.envs.alfworld.engine import tables_of
from rla.envs.alfworld.environment import Alfworld
from rla.envs.alfworld.solver import solve
from rla.envs.alfworld.tasks import task_from_game
from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import Labelled
from rla.rollouts.labels import PlayedEpisode, StepLabels, label_episodes
from tests.unit.builders import configured
from tests.unit.envs.alfworld import scenes

TASK = task_from_game(scenes.game(), split="train", scene="kitchen")
ALFWORLD = Alfworld()
CONFIG = configured()


def play(name: str, actions: Sequence[str]) -> PlayedEpisode:
    engine = ALFWORLD.make(TASK, CONFIG)
    engine.reset()
    answers = [engine.step(action).text for action in actions]
    return PlayedEpisode(trajectory_id=name, task_id=TASK.task_id, actions=list(actions), answers=answers)


def label(*episodes: PlayedEpisode, labeller: Any = ALFWORLD) -> StepLabels:
    return label_episodes(episodes, {TASK.task_id: TASK}, labeller=labeller, config=CONFIG)


def test_a_shortest_plan_comes_nearer_with_every_step() -> None:
    plan = solve(tables_of(TASK.payload))
    assert plan is not None
    found = label(play("a", plan))
    assert found.unlabelled == 0
    assert found.frame["step"].to_list() == list(range(len(plan)))
    assert found.frame["label"].to_list() == [1] * len(plan)
    assert found.frame["before"].to_list() == [float(left) for left in range(len(plan), 0, -1)]
    assert found.frame["after"].to_list() == [float(left) for left in range(len(plan) - 1, -1, -1)]


def test_winning_back_lost_ground_is_nearer_and_no_help() -> None:
    back = ["put mug 2 in/on countertop 1", "take mug 2 from countertop 1"]
    frame = label(play("a", ["go to countertop 1", "take mug 2 from countertop 1", *back])).frame
    assert frame["label"].to_list() == [1, 1, -1, -1]
    assert (frame["after"] < frame["before"]).to_list() == [True, True, False, True]


def test_an_episode_of_other_rules_or_of_an_unknown_task_is_counted_and_not_labelled() -> None:
    right = play("a", ["go to countertop 1"])
    found = label(right, replace(right, answers=["You fly."]), replace(right, task_id="unknown"))
    assert (found.frame.height, found.unlabelled) == (1, 2)


def test_an_environment_that_knows_nothing_of_an_episode_gives_no_labels() -> None:
    class Silent(Alfworld):
        def label(self, *arguments: Any, **options: Any) -> list[list[Labelled]]:
            return []

    found = label(play("a", ["go to countertop 1"]), labeller=Silent())
    assert (found.frame.height, found.unlabelled) == (0, 1)


def test_an_environment_that_fails_costs_the_episode_that_it_fails_in() -> None:
    class Lost(Alfworld):
        calls = 0

        def label(self, *arguments: Any, **options: Any) -> list[list[Labelled]]:
            self.calls += 1
            if self.calls == 2:
                raise EnvironmentFailure("the page did not answer, twice")
            return super().label(*arguments, **options)

    found = label(*(play(name, ["go to countertop 1"]) for name in "abc"), labeller=Lost())
    assert (found.frame["trajectory_id"].to_list(), found.unlabelled) == (["a", "c"], 1)
