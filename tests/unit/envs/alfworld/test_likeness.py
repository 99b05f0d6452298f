"""A changed task equals no task that exists, by its id or by what it asks in its scene."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rla.adaptation.candidates import ExistingTasks
from rla.envs.alfworld.engine import tables_of
from rla.envs.alfworld.environment import Alfworld
from rla.envs.alfworld.solver import solve
from rla.envs.protocols import RejectedEdit
from rla.store.records import Task
from tests.unit.adaptation.builders import task
from tests.unit.builders import configured


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
