"""Candidates in a world small enough to read: a task is a number up to ten, an edit adds to it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from rla.adaptation.choose import Choice
from rla.adaptation.propose import Candidate, RulesProposer, prove
from rla.envs.setting import RejectedEdit
from rla.records import Direction, Status, Task
from tests.unit.adaptation.builders import task

ROOT = replace(task("n4"), payload="4.0")


@dataclass(frozen=True, slots=True)
class Numbers:
    """An editor of tasks whose payload is a number."""

    def propose(self, task: Task, *, direction: str, critique: str, seed: int, count: int) -> list[str]:
        sign = 1 if direction == "harder" else -1
        return [json.dumps({"add": sign * (seed + n)}) for n in range(count)]

    def apply(self, task: Task, edit: str, *, root: Task, taken: set[str], created: int) -> Task:
        number = float(task.payload) + float(json.loads(edit)["add"])
        if not 0 <= number <= 10:
            raise RejectedEdit("outside 0 to 10")
        made = replace(
            task,
            task_id=f"n{number:g}",
            payload=str(number),
            status=Status.PENDING.value,
            parent_id=task.task_id,
            depth=task.depth + 1,
            created=created,
            edit=edit,
        )
        if made.task_id in taken:
            raise RejectedEdit("exists")
        return made


def proven(*edits: str, taken: set[str] | None = None) -> list[Candidate]:
    return prove(
        edits,
        Choice(ROOT, Direction.HARDER, 1.0),
        editor=Numbers(),
        root=ROOT,
        taken=taken or {"n4"},
        critique="too short (3 of 8)",
        created=7,
    )


def test_the_rules_proposer_passes_direction_seed_and_count_on() -> None:
    edits = RulesProposer(Numbers()).propose(
        task=ROOT, direction=Direction.EASIER, accuracy=0.0, critique="", count=3, seed=2
    )
    assert edits == ['{"add": -2}', '{"add": -3}', '{"add": -4}']


def test_the_first_proven_edit_is_pending_and_later_ones_are_not_tried() -> None:
    refused, valid = proven('{"add": 7}', '{"add": 2}', '{"add": 3}')
    assert (refused.valid, refused.reason) == (False, "outside 0 to 10")
    assert (valid.valid, valid.reason, valid.task.task_id) == (True, "", "n6")
    assert (valid.task.status, valid.task.direction, valid.task.depth) == ("pending", "harder", 1)
    assert (valid.parent_accuracy, valid.critique) == (1.0, "too short (3 of 8)")


def test_a_refused_edit_is_kept_under_an_id_of_its_own() -> None:
    first, second = proven('{"add": 7}', '{"add": 0}')
    assert second.reason == "exists"
    assert len({first.task.task_id, second.task.task_id, ROOT.task_id}) == 3
    assert (first.task.edit, first.task.parent_id, first.task.created) == ('{"add": 7}', "n4", 7)
    assert first.task.payload == ROOT.payload


def test_an_edit_proposed_twice_is_tried_once_and_no_edits_give_no_candidates() -> None:
    assert len(proven('{"add": 9}', '{"add": 9}')) == 1
    assert proven() == []


def test_a_row_has_the_columns_of_a_candidates_shard() -> None:
    (candidate,) = proven('{"add": 1}')
    assert candidate.row().keys() == ROOT.row().keys() | {"valid", "reason", "parent_accuracy", "critique"}
