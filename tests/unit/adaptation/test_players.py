"""The expert's figures on accepted tasks, their parents and roots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rla.adaptation.acceptance import with_expert
from rla.config import Config
from rla.envs.alfworld.environment import Alfworld
from rla.envs.protocols import Demonstration
from rla.store.records import Task
from tests.unit.adaptation.builders import pending, task, verdict_on
from tests.unit.builders import configured

OMITTED = "env.omit_commands=[look, inventory, help, examine]"


class Two:
    """Wins every task of depth 0 in two steps, and of others every second episode, in four."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def play_expert(self, task: Task, config: Config, *, seed: int) -> Demonstration:
        self.calls.append(task.task_id)
        won = task.depth == 0 or self.calls.count(task.task_id) % 2 == 0
        actions = ["go"] * (2 if task.depth == 0 else 4)
        return Demonstration(observations=[], commands=[], actions=actions, final_observation="", won=won)


def test_an_accepted_task_is_played_beside_its_parent_and_its_root_once_each() -> None:
    child, other = pending("a", task_id="a2", parent_id="a1"), pending("b", task_id="b1")
    known = {t.task_id: t for t in (child, other, task("a"), task("a", task_id="a1", depth=1), task("b"))}
    verdicts = [verdict_on(child, accepted=True), verdict_on(other, accepted=False)]
    player = Two()
    accepted, rejected = with_expert(verdicts, known, player, configured())
    assert (accepted.expert_success, accepted.expert_steps) == (0.5, 4.0)
    assert (accepted.parent_expert_success, accepted.parent_expert_steps) == (0.5, 4.0)
    assert (accepted.root_expert_success, accepted.root_expert_steps) == (1.0, 2.0)
    assert sorted(player.calls) == ["a"] * 8 + ["a1"] * 8 + ["a2"] * 8
    assert rejected == verdicts[1]


@pytest.mark.parametrize(("steps", "expected"), [(20, 1.0), (1, 0.0)])
def test_the_expert_of_alfworld_plays_what_the_policy_may_play(steps: int, expected: float) -> None:
    config = configured(f"env.max_steps={steps}", OMITTED, "tasks.train_scenes=2", "seed=3")
    [first, *_] = Alfworld().tasks(config, seed=0, split="train")
    verdict = verdict_on(replace(first, parent_id=first.task_id, slot=first.task_id), accepted=True)
    [played] = with_expert([verdict], {first.task_id: first}, Alfworld(), config)
    assert played.expert_success == expected and 1 <= (played.expert_steps or 0) <= steps
    assert with_expert([verdict], {first.task_id: first}, Alfworld(), config) == [played]
