"""The second proof: a plan counts where every command is admissible and the last one, no earlier, wins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import Literal

import pytest

from rla.adaptation.candidates import ExistingTasks
from rla.envs.alfworld.engine import tables_of
from rla.envs.alfworld.environment import Alfworld
from rla.envs.alfworld.solver import solve
from rla.envs.alfworld.textworld import EngineProof, refusal
from rla.envs.observation import EnvironmentFailure, Observation
from rla.envs.protocols import RejectedEdit
from rla.errors import UserError
from rla.store.records import Task
from tests.unit.adaptation.builders import task
from tests.unit.builders import configured


@dataclass(slots=True)
class Corridor:
    """Won after `length` steps; it breaks at step `breaks`."""

    length: int
    breaks: int = -1
    at: int = 0

    def reset(self) -> Awaitable[Observation]:
        return self._seen()

    def step(self, action: str) -> Awaitable[Observation]:
        self.at += 1
        return self._seen()

    def close(self) -> None: ...

    async def _seen(self) -> Observation:
        if self.at == self.breaks:
            raise EnvironmentFailure("it broke")
        return Observation(text="", commands=("go",), won=self.at >= self.length, done=False)


@pytest.mark.parametrize(
    ("corridor", "plan", "reason"),
    [
        (Corridor(2), ["go", "go"], ""),
        (Corridor(0), ["go"], "already true"),
        (Corridor(1), ["go", "go"], "wins early"),
        (Corridor(3), ["go", "go"], "does not win"),
        (Corridor(2), ["go", "fly"], "step 2 of the plan is not admissible"),
        (Corridor(2, breaks=0), ["go", "go"], "it broke"),
        (Corridor(2, breaks=1), ["go", "go"], "it broke"),
    ],
)
def test_a_plan_is_replayed_to_its_end(corridor: Corridor, plan: list[str], reason: str) -> None:
    found = asyncio.run(refusal(corridor, plan))
    assert reason in found and bool(found) is bool(reason)


@pytest.mark.parametrize(
    ("asked", "installed", "found"),
    [("auto", True, "both"), ("auto", False, "fast"), ("fast", True, "fast"), ("both", False, "none")],
)
def test_auto_is_settled_by_what_is_installed(
    asked: Literal["auto", "fast", "both"], installed: bool, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rla.envs.alfworld.textworld.find_spec", lambda name: name if installed else None)
    config = configured(f"env.own.verify_engines={asked}")
    if found == "none":
        with pytest.raises(UserError, match="alfworld"):
            EngineProof(config)
    else:
        proof = EngineProof(config)
        assert proof.proven_in == (("fast", "textworld") if found == "both" else ("fast",))
        assert bool(proof.remark) is (asked == "auto" and not installed)


class Halves:
    """Alike are tasks with the same payload; it counts how many it was asked to compare."""

    asked = 0

    def likeness(self, task: Task) -> str:
        self.asked += 1
        return f"like {task.payload}"


def test_what_a_task_may_not_equal_is_looked_up_in_its_own_scene() -> None:
    halves = Halves()
    here, there = replace(task("a"), payload="1"), replace(task("b"), payload="2", scene="bathroom-1")
    taken = ExistingTasks(halves, [here, there, here])
    assert taken.of(here) == {"a", "b", "like 1"} == taken.of(here)
    assert halves.asked == 1
    taken.add(replace(task("c"), payload="3"))
    assert taken.of(here) == {"a", "b", "c", "like 1", "like 3"}


def test_a_game_that_differs_in_ids_alone_is_the_same_task() -> None:
    """A mug that is taken away and put back has another id, and the task asks the same as before."""
    editor = Alfworld()
    config = configured("tasks.train_scenes=1", "tasks.tasks_per_scene=1", "tasks.size=small", "tasks.kinds=[clean]")
    (root,) = editor.tasks(config, seed=5, split="train")
    wanted = next(word for word in solve(tables_of(root.payload)) or () if word.startswith("take ")).split(" ")
    item, place = " ".join(wanted[1:3]), " ".join(wanted[4:])
    kind = editor.proposal_prompt().schema(root)["properties"]["add"]["items"]["properties"]["object_type"]["enum"]
    named = next(name for name in kind if name.lower() == item.split()[0])
    swap = f'{{"remove": [{{"object": "{item}"}}], "add": [{{"object_type": "{named}", "to": "{place}", "count": 1}}]}}'
    with pytest.raises(RejectedEdit, match="changes nothing"):
        editor.apply(root, swap, root=root, taken=set(), created=1)
    hinted = editor.apply(root, '{"hint": "how"}', root=root, taken=set(), created=1)
    assert hinted.task_id != root.task_id
    with pytest.raises(RejectedEdit, match="in the pool, is pending or was judged"):
        editor.apply(root, '{"hint": "how"}', root=root, taken={editor.likeness(hinted)}, created=1)
