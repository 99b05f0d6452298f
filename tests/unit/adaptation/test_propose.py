"""Candidates in a world small enough to read: a task is a number up to ten, an edit adds to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from dataclasses import dataclass, replace

from rla.adaptation.candidates import NOT_TRIED, Candidate, Replay, prove
from rla.adaptation.drafting import NOTHING, Choice, Proposal
from rla.envs.protocols import RejectedEdit
from rla.store.records import Direction, Status, Task
from tests.unit.adaptation.builders import task

ROOT = replace(task("n4"), payload="4.0")


@dataclass(frozen=True, slots=True)
class Numbers:
    """An editor of tasks whose payload is a number."""

    edit_fields = frozenset({"add", "take"})

    def propose(self, task: Task, *, direction: str, focus: str = "", seed: int, count: int) -> list[str]:
        sign = 1 if direction == "harder" else -1
        return [json.dumps({"add": sign * (seed + n)}) for n in range(count)]

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
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


def proven(*edits: str | Proposal, replay: Replay | None = None, allowed: Collection[str] = ()) -> list[Candidate]:
    return asyncio.run(
        prove(
            [Proposal(edit) if isinstance(edit, str) else edit for edit in edits],
            Choice(ROOT, Direction.HARDER, 1.0),
            editor=Numbers(),
            root=ROOT,
            taken={"n4"},
            critique="too short (3 of 8)",
            created=7,
            allowed=allowed,
            replay=replay,
        )
    )


def test_the_first_proven_edit_is_pending_and_later_ones_are_kept_and_not_tried() -> None:
    cut = Proposal('{"add": 5', "the reply was cut")
    refused, valid, later, unread = proven('{"add": 7}', '{"add": 2}', '{"add": 3}', cut)
    assert (refused.valid, refused.reason) == (False, "outside 0 to 10")
    assert (valid.valid, valid.reason, valid.task.task_id) == (True, "", "n6")
    assert (valid.task.status, valid.task.direction, valid.task.depth) == ("pending", "harder", 1)
    assert (valid.parent_accuracy, valid.critique) == (1.0, "too short (3 of 8)")
    assert (later.valid, later.reason, later.task.edit) == (False, NOT_TRIED, '{"add": 3}')
    assert (later.task.payload, unread.valid, unread.reason) == (ROOT.payload, False, "the reply was cut")
    assert len({candidate.task.task_id for candidate in (refused, valid, later, unread)}) == 4


def test_a_refused_edit_is_kept_under_an_id_of_its_own() -> None:
    first, second = proven('{"add": 7}', '{"add": 0}')
    assert second.reason == "exists"
    assert len({first.task.task_id, second.task.task_id, ROOT.task_id}) == 3
    assert (first.task.edit, first.task.parent_id, first.task.created) == ('{"add": 7}', "n4", 7)
    assert first.task.payload == ROOT.payload


def test_what_a_second_engine_refuses_is_kept_with_its_reason_and_the_next_edit_is_tried() -> None:
    async def replay(child: Task) -> str:
        return "" if child.payload == "7.0" else "does not win there"

    refused, valid = proven('{"add": 2}', '{"add": 3}', replay=replay)
    assert (refused.reason, refused.task.payload, refused.task.plan_length) == ("does not win there", "4.0", None)
    assert (valid.valid, valid.task.task_id) == (True, "n7")


def test_a_proposal_that_is_none_is_kept_and_never_applied() -> None:
    cut, valid = proven(Proposal('{"add": 3', "the reply was cut"), '{"add": 1}')
    assert (cut.valid, cut.reason, cut.task.edit) == (False, "the reply was cut", '{"add": 3')
    assert valid.valid


def test_an_edit_proposed_twice_is_tried_once() -> None:
    assert len(proven('{"add": 9}', '{"add": 9}')) == 1


def test_where_nothing_is_proposed_the_critique_is_kept() -> None:
    (nothing,) = proven(NOTHING)
    assert (nothing.valid, nothing.reason, nothing.critique) == (False, NOTHING.refused, "too short (3 of 8)")
    assert (nothing.task.edit, nothing.task.parent_id, nothing.task.direction) == (None, "n4", "harder")
    assert nothing.task.task_id != "n4"


def test_a_row_has_the_columns_of_a_candidates_shard() -> None:
    (candidate,) = proven('{"add": 1}')
    assert candidate.row().keys() == ROOT.row().keys() | {"valid", "reason", "parent_accuracy", "critique"}


def test_edits_with_other_names_than_asked_for_are_refused() -> None:
    texts = ['{"add": 1}', '{"add": 1, "take": 2}', '{"take": 2}', "no edit", '{"fly": 1}']
    outside = "adaptation.edits allows add alone"
    reasons = [candidate.reason for candidate in proven(*texts, NOTHING, allowed=["add"])]
    assert reasons == ["", outside, outside, NOT_TRIED, NOT_TRIED, NOTHING.refused]
    assert [candidate.reason for candidate in proven('{"add": 1, "take": 2}')] == [""]
