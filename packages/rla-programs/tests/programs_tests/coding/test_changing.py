"""Changed problems: what an edit may say, and what has to be proven by runs before a problem becomes pending."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from rla_programs.coding.data.problems import problem_of, task_from_problem
from rla_programs.coding.environment import Coding
from rla_programs.coding.params import CodingParams
from rla_programs.coding.prompts import PlainProgramPrompt
from rla_programs.coding.proving import UNPROVEN, CodingProof
from rla_programs.coding.rewriting import program_course
from rla_programs.coding.running import Runner
from rla_programs.execution.records import ExecutionConfig

from programs_tests.coding.builders import function, stdio
from programs_tests.coding.trusted import Trusted
from rla.adaptation.drafting import edit_kind
from rla.envs.protocols import Message, ProposalView, RejectedEdit
from rla.store.records import Task
from tests.unit.builders import configured

CODING = Coding()
(EASY, *_) = CODING.tasks(
    configured("tasks.train_scenes=2", "tasks.tasks_per_scene=1", env="coding"), seed=0, split="train"
)
PARENT = task_from_problem(stdio(("1\n", "2\n")), split="train")
DOUBLE = "print(2 * int(input()))"
REWRITE: dict[str, Any] = {
    "statement": "Read an integer n. Print twice n.",
    "solution": DOUBLE,
    "tests": [{"input": str(n), "output": str(2 * n)} for n in (0, 1, 5, -3)],
    "inputs": ["7", "-8", "100", "2"],
}
OTHER = "n = int(input())\nprint(n + n)"
WRONG = "print(int(input()) + 1)"


def rewritten(**fields: Any) -> str:
    return json.dumps({"rewrite": {**REWRITE, **fields}})


def child(edit: str, parent: Task = PARENT, *, taken: set[str] | None = None) -> Task:
    return CODING.apply(parent, edit, root=parent, taken=taken or set(), created=3)


def refused(task: Task, *programs: str, asked: bool = True) -> str:
    """What the proof says where a language model answers with `programs`."""

    async def ask(messages: list[Message], samples: int) -> list[str]:
        assert messages[0]["content"].startswith(task.instruction) and samples == 4
        return list(programs)

    runner = Runner(ExecutionConfig(), Trusted())
    proof = CodingProof(runner, CodingParams(), prompt=PlainProgramPrompt(), ask=ask if asked else None)
    return asyncio.run(proof(task))


def test_rules_propose_relatives_that_are_proven_without_a_model() -> None:
    level = problem_of(EASY.payload).difficulty
    edits = CODING.propose(EASY, direction="harder", seed=1, count=3)
    assert len(edits) == 3 == len(set(edits)) and {edit_kind(edit, CODING.edit_fields) for edit in edits} == {
        "relative"
    }
    made = child(edits[0], EASY)
    assert problem_of(made.payload).difficulty == level + 1 if level else False
    assert (made.parent_id, made.slot, made.depth, made.status) == (EASY.task_id, EASY.slot, 1, "pending")
    assert refused(made, asked=False) == ""
    assert CODING.propose(PARENT, direction="harder", seed=1, count=3) == []


def test_a_relative_has_to_be_one() -> None:
    (edit,) = CODING.propose(EASY, direction="harder", seed=1, count=1)
    fields = json.loads(edit)["relative"]
    for change in ({"template": "os_system"}, {"parameters": [999]}):
        with pytest.raises(RejectedEdit, match="no built-in problem"):
            child(json.dumps({"relative": {**fields, **change}}), EASY)
    with pytest.raises(RejectedEdit, match="no built-in problem"):
        child(edit, PARENT)


def test_a_rewritten_problem_is_proven_by_programs_that_agree() -> None:
    made = child(rewritten())
    assert edit_kind(made.edit, CODING.edit_fields) == "rewrite" and made.scene == PARENT.scene
    assert refused(made, OTHER, WRONG) == ""


@pytest.mark.parametrize(
    ("fields", "programs", "reason"),
    [
        ({"solution": WRONG}, [OTHER, WRONG], "the reference solution fails a test"),
        ({}, [WRONG], "none of 1 independent programs passes"),
        ({}, [DOUBLE, f"{DOUBLE}\n"], "none of 0 independent programs passes"),
        ({}, ["n = int(input())\nprint(2 * n if n < 9 else 0)", WRONG], "disagrees with the reference"),
        ({}, [OTHER], "tell no wrong program"),
        ({}, [OTHER, "1 // 0", "not a program"], "tell no wrong program"),
        ({"inputs": ["7", "2", "3", "x"]}, [OTHER, WRONG], "fails on a further input"),
        ({"inputs": ["0", "1", "5", "-3"]}, [OTHER, WRONG], "too few further inputs"),  # those of the tests
        ({"inputs": ["7", "7\n", "8", "9"]}, [OTHER, WRONG], "too few further inputs"),
    ],
)
def test_what_is_not_proven_is_refused(fields: dict[str, Any], programs: list[str], reason: str) -> None:
    assert reason in refused(child(rewritten(**fields)), *programs)


def test_nothing_is_proven_where_no_other_model_can_be_asked() -> None:
    assert refused(child(rewritten()), asked=False) == UNPROVEN


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ("print(1)", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ("{}", "does not fit its schema"),
        (rewritten(tests=REWRITE["tests"][:3]), r"schema at \$\.rewrite\.tests"),
        (rewritten(checker="import os"), "does not fit its schema"),
        (rewritten(statement="Read an integer n. Print\x00 twice n."), "what is no text"),
        (rewritten(tests=[REWRITE["tests"][0]] * 4), "a test is there twice"),
        (rewritten(statement=stdio(("1", "2")).statement), "equal to a task"),
    ],
)
def test_edits_are_read_strictly(edit: str, reason: str) -> None:
    with pytest.raises(RejectedEdit, match=reason):
        child(edit)


def test_outputs_of_a_function_are_values() -> None:
    parent = task_from_problem(function(((1,), 2)), split="train")
    with pytest.raises(RejectedEdit, match="cannot be read"):
        child(rewritten(tests=[{"input": "1", "output": "two\napples"}] * 4), parent)
    made = child(rewritten(solution="def f(n):\n    return 2 * n"), parent)
    assert refused(made, "def f(n):\n    return n + n", "def f(n):\n    return n") == ""


def test_a_task_that_exists_in_other_words_is_refused() -> None:
    made = child(rewritten())
    shouted = rewritten(statement="READ an integer  n. Print twice n.", inputs=["1", "2", "3", "4"])
    with pytest.raises(RejectedEdit, match="equal to a task"):
        child(shouted, taken={CODING.likeness(made)})


def test_the_critic_says_which_programs_pass_which_tests() -> None:
    texts = ["tests: 111", "tests: 110", "tests: 100", "hostile text"]
    rows = [{"outcome": 1 if t == texts[0] else -1, "steps": [1], "final_observation": t} for t in texts]
    assert program_course(rows).told() == "1 of 3 programs pass all tests; programs that pass test 1: 3, 2: 2, 3: 1"
    assert program_course([]).told() == ""


def test_a_model_is_told_the_problem_its_tests_and_what_the_programs_did() -> None:
    view = ProposalView(direction="easier", accuracy=0.25, critique="1 of 4 programs pass all tests")
    (message,) = CODING.proposal_prompt().messages(PARENT, view)
    for part in ("make this one easier", PARENT.instruction, '1: {"input": "1", "output": "2"}', "25%", view.critique):
        assert part in message["content"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("policy.decoding", "admissible"), ("judge.decoding", "admissible"), ("credit.estimator", "anchor")],
)
def test_params_that_a_program_has_no_place_for_are_refused(key: str, value: str) -> None:
    from rla.errors import UserError

    with pytest.raises(UserError, match=f"{key} is {value}; env.name: coding needs"):
        configured(f"{key}={value}", env="coding")
