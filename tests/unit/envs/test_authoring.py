"""The helpers for authors, on a game that counts up to three."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from rla.config import Config
from rla.config.sections import EnvConfig
from rla.envs.authoring import (
    changed_task,
    course_of_one_phase,
    edit_values,
    label_through,
    play_through,
    root_task,
)
from rla.envs.observation import Observation
from rla.envs.protocols import RejectedEdit
from rla.store.records import Direction, Task


class Count:
    """`up` counts to three, which wins; `down` counts down; `look` does nothing."""

    def __init__(self, reward: bool = False) -> None:
        self.at, self.closed, self.reward = 0, False, reward

    def reset(self) -> Observation:
        self.at = 0
        return self.seen()

    def step(self, action: str) -> Observation:
        self.at += {"up": 1, "down": -1}.get(action, 0)
        return self.seen()

    def seen(self) -> Observation:
        won = self.at == 3 and not self.reward
        reward = self.at / 3 if self.reward else None
        return Observation(text=str(self.at), commands=("up", "down", "look"), won=won, done=won, reward=reward)

    def close(self) -> None:
        self.closed = True


def config(**env: Any) -> Config:
    return Config(env=EnvConfig(name="count", **env))


def root(**changes: Any) -> Task:
    made = root_task(env="count", split="train", instruction="count to 3.", content={"to": 3})
    return replace(made, **changes)


def test_a_root_is_its_own_slot_and_its_id_depends_on_the_content() -> None:
    task = root()
    assert (task.slot, task.kind, task.scene, task.payload) == (task.task_id, "count", "count", '{"to": 3}')
    other = root_task(env="count", split="train", instruction="count to 4.", content={"to": 4})
    assert other.task_id != task.task_id == root().task_id


def test_a_changed_task_is_pending_in_the_slot_of_its_parent() -> None:
    child = changed_task(
        root(depth=1, direction="harder"), content={"to": 4}, edit={"to": 4}, taken=(), created=2, plan_length=4
    )
    assert (child.status, child.depth, child.created, child.plan_length) == ("pending", 2, 2, 4)
    assert (child.slot, child.parent_id, child.direction) == (root().slot, root().task_id, None)
    assert json.loads(child.edit or "") == json.loads(child.payload) == {"to": 4}


def test_a_changed_task_must_be_new() -> None:
    child = changed_task(root(), content={"to": 4}, edit={"to": 4}, taken=(), created=2)
    for content, taken in (({"to": 3}, ()), ({"to": 4}, (child.task_id,))):
        with pytest.raises(RejectedEdit, match="such a task already"):
            changed_task(root(), content=content, edit={}, taken=taken, created=2)


def test_an_edit_is_read_by_names_and_types() -> None:
    assert edit_values('{"to": 5, "by": "two"}', {"by": str, "to": int}) == {"to": 5, "by": "two"}


@pytest.mark.parametrize(
    "edit",
    ["", "5", "[]", "{}", '{"to": 5.0}', '{"to": true}', '{"to": "5"}', '{"to": 5, "x": 1}', '{"to": 5', "[" * 5000],
)
def test_other_edits_are_refused(edit: str) -> None:
    with pytest.raises(RejectedEdit, match=r"not a JSON object of {'to': int}"):
        edit_values(edit, {"to": int})


def test_an_episode_by_a_rule() -> None:
    game = Count()
    shown = play_through(game, lambda seen: "up", config=config(omit_commands=("look",)))
    assert (shown.actions, shown.observations, shown.final_observation) == (["up"] * 3, ["0", "1", "2"], "3")
    assert shown.commands == [("up", "down")] * 3
    assert shown.won and game.closed


def test_an_episode_ends_after_max_steps() -> None:
    shown = play_through(Count(), lambda seen: "look", config=config(max_steps=4))
    assert (len(shown.actions), shown.won) == (4, False)


def test_an_episode_is_won_by_its_reward() -> None:
    shown = play_through(Count(reward=True), lambda seen: "up", config=config(reward_threshold=0.5))
    assert (len(shown.actions), shown.won) == (2, True)


def test_a_share_of_the_actions_is_random() -> None:
    def share(random_share: float, seed: int = 1) -> list[str]:
        drawn = play_through(
            Count(), lambda seen: "look", config=config(max_steps=200), seed=seed, random_share=random_share
        )
        return drawn.actions

    assert set(share(0.0)) == {"look"}
    assert share(0.5) == share(0.5) != share(0.5, seed=2)
    assert set(share(1.0, seed=3)) > {"look"}


def test_labels_of_the_actions_and_of_others() -> None:
    game = Count()
    helps = [0]

    def up_helps(action: str) -> bool:
        helps.append(game.at)
        return action == "up"

    (first, second) = label_through(game, ["up", "look"], up_helps, config=config(), others=2)
    assert next((one.action, one.score, one.next_observation) for one in first) == ("up", 1, "1")
    assert {(one.action, one.score, one.next_observation) for one in first[1:]} == {
        ("down", -1, "-1"),
        ("look", -1, "0"),
    }
    assert next((one.action, one.score, one.next_observation) for one in second) == ("look", -1, "1")
    assert {(one.action, one.next_observation) for one in second[1:]} == {("up", "2"), ("down", "0")}
    assert helps[-1] == 1  # asked before the step


def test_labels_of_the_actions_alone() -> None:
    labels = label_through(Count(), ["up", "up"], lambda action: True, config=config())
    assert [len(step) for step in labels] == [1, 1]


@pytest.mark.parametrize(("edit", "kind"), [('{"x": NaN}', float), ('{"x": 1e999}', float), ('{"x": "\\ud800"}', str)])
def test_edits_that_no_file_holds_are_refused(edit: str, kind: type) -> None:
    with pytest.raises(RejectedEdit):
        edit_values(edit, {"x": kind})


def test_a_course_of_one_phase() -> None:
    rows = [{"outcome": outcome, "steps": [{}] * steps} for outcome, steps in ((1, 3), (-1, 5), (-1, 4))]
    course = course_of_one_phase(rows, name="counting")
    assert (course.episodes, course.won, course.steps, course.spent) == (3, 1, 12, (("counting", 12),))
    assert course.focus(Direction.EASIER) == "counting"
    assert course_of_one_phase([]).told() == ""
