"""Tasks that change: by rule, by a model's word, and what is refused of it."""

from __future__ import annotations

import json

import jsonschema
import pytest
from rla_screens.desktop.adapting import DesktopProposals, child_of_desktop, desktop_course, drawn_desktop_edits
from rla_screens.desktop.scenarios import scenario_of, task_of_scenario
from rla_screens.desktop.tasks import asked_otherwise, desktop_tasks, own_scenarios

from rla.envs.protocols import ProposalView, RejectedEdit
from rla.store.records import Direction, Task

SCENE = next(one for one in own_scenarios() if one.id == "text-append")
TASK = task_of_scenario(SCENE, split="train")


def child(edit: object, task: Task = TASK) -> Task:
    return child_of_desktop(task, json.dumps(edit), root=TASK, taken=(), created=2)


def test_every_edit_by_rule_gives_a_task_that_its_schema_allows() -> None:
    for scene in own_scenarios():
        task = task_of_scenario(scene, split="train")
        for direction in Direction:
            for edit in drawn_desktop_edits(task, direction=direction, seed=1, count=4):
                jsonschema.validate(json.loads(edit), DesktopProposals().schema(task))
                made = child_of_desktop(task, edit, root=task, taken=(), created=1)
                assert made.instruction != task.instruction and made.parent_id == task.task_id


def test_a_hint_makes_it_easier_and_is_taken_away_again() -> None:
    hinted = child(json.loads(drawn_desktop_edits(TASK, direction="easier", seed=0, count=1)[0]))
    assert hinted.instruction == f"{TASK.instruction} {SCENE.hints[0]}"
    harder = drawn_desktop_edits(hinted, direction="harder", seed=0, count=1)[0]
    assert json.loads(harder) == {"current_task": {"evaluator1": TASK.instruction}}
    with pytest.raises(RejectedEdit, match="already"):
        child(json.loads(harder), hinted)


def test_harder_is_a_verifier_whose_script_is_not_shorter() -> None:
    edits = drawn_desktop_edits(TASK, direction="harder", seed=0, count=8)
    names = {name for edit in edits for name in json.loads(edit)["current_task"]}
    assert names == {"evaluator2", "evaluator3"}


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"current_task": {"evaluator9": SCENE.instruction}}, "no verifier"),
        ({"current_task": {"evaluator1": "Open the browser."}}, "something else"),
        ({"current_task": {"evaluator1": SCENE.instruction, "evaluator2": "x"}}, "one verifier"),
        ({"current_task": {"evaluator1": SCENE.instruction + " x" * 400}}, "at most"),
        ({"current_task": {"evaluator1": SCENE.instruction}, "evaluator_list": {}}, "not a JSON object"),
        ({"current_task": {"evaluator1": 3}}, "one verifier"),
        ({"current_task": {"evaluator1": SCENE.instruction}}, "already"),
    ],
)
def test_what_a_model_may_not_change(edit: object, reason: str) -> None:
    with pytest.raises(RejectedEdit, match=reason):
        child(edit)


def test_control_tokens_of_an_instruction_are_broken() -> None:
    made = child({"current_task": {"evaluator1": f"{SCENE.instruction} <tool_call>"}})
    assert "< tool_call>" in made.instruction and made.instruction == scenario_of(made).instruction


def test_the_proposer_reads_what_the_critic_wrote() -> None:
    view = ProposalView(direction="easier", accuracy=0.125, critique="The agent never saves the file.")
    (message,) = DesktopProposals().messages(TASK, view)
    assert "The agent never saves the file." in message["content"] and "12%" in message["content"]
    assert DesktopProposals().criticised


def test_the_course_tells_acting_from_finishing() -> None:
    def episode(outcome: int, *actions: str) -> dict[str, object]:
        return {"outcome": outcome, "steps": [{"observation": "", "action": one} for one in actions]}

    course = desktop_course([episode(1, "mouse_click(1, 2)", "done()"), episode(-1, "noop(1)"), episode(-1, "done()")])
    assert (course.episodes, course.won) == (3, 1)
    assert [(phase.ended, phase.steps) for phase in course.phases] == [(1, 2), (1, 2)]
    assert dict(course.spent) == {"done": 2, "mouse_click": 1, "noop": 1}


def test_splits_have_no_scene_in_common_and_tasks_are_the_same_every_time() -> None:
    def drawn(held_out: bool) -> list[Task]:
        return desktop_tasks((), count=99, held_out=held_out, seed=3, split="s", hints=False)

    train, test = drawn(False), drawn(True)
    assert {task.scene for task in train} & {task.scene for task in test} == set()
    assert {task.scene for task in [*train, *test]} == {one.id for one in own_scenarios()}
    assert [task.task_id for task in train] == [task.task_id for task in drawn(False)]
    assert {task.kind for task in test} == {"files", "text", "preferences", "spreadsheets"}


def test_every_scene_has_a_script_for_each_verifier_and_two_wrong_ends() -> None:
    assert len(own_scenarios()) >= 20
    for one in own_scenarios():
        assert len(one.wrong) >= 2 and one.solutions.keys() == one.verifiers.keys() == one.templates.keys()
        assert all(asked_otherwise(one, name).solution for name in one.verifiers)
