"""Questions that change: levels of families by construction, rewritten ones where programs confirm the answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from rla_bridges.adapters.reasoning_items import is_held_out
from rla_programs.tool.adapting import QUESTION_FIELDS, QuestionProposals, round_course
from rla_programs.tool.environment import Tool
from rla_programs.tool.episode import TAKEN
from rla_programs.tool.proving import NOBODY, AnswerProof, computes
from rla_programs.tool.questions import Question, question_of, task_of_question

from programs_tests.tool.questions import drawn
from rla.adaptation.candidates import ExistingTasks
from rla.envs.observation import CallResult
from rla.envs.protocols import Message, ProposalView, RejectedEdit
from rla.store.records import Task

TOOL = Tool()
(POWER,) = drawn("powers")
(PRODUCT,) = drawn("reasoning-gym:products")
IMPORTED = task_of_question(
    Question(text="What is 6 times 7?", check="math", answer="42", source="aime"), split="train"
)
VIEW = ProposalView(direction="harder", accuracy=0.9, critique="")
ADDED = "print(40 + 10)"
LOOPED = "total = 0\nfor n in (40, 10):\n    total += n\nprint(total)"


def child(task: Task, edit: Any, *, taken: frozenset[str] = frozenset()) -> Task:
    text = edit if isinstance(edit, str) else json.dumps(edit)
    return TOOL.apply(task, text, root=task, taken=taken, created=3)


def rewrite(question: str = "What is 40 plus 10?", answer: str = "50") -> dict[str, Any]:
    return {"rewrite": {"question": question, "answer": answer}}


@pytest.mark.parametrize("task", [POWER, PRODUCT], ids=["own", "reasoning-gym"])
def test_harder_is_one_attribute_one_level_up(task: Task) -> None:
    before = question_of(task).family
    edits = TOOL.propose(task, direction="harder", seed=1, count=4)
    assert len(edits) == 4 and edits == TOOL.propose(task, direction="harder", seed=1, count=4)
    for edit in edits:
        values = json.loads(edit)
        made = child(task, edit)
        after = question_of(made).family
        assert before is not None and after is not None and values.keys() <= QUESTION_FIELDS
        assert after["levels"] == {**before["levels"], values["attribute"]: before["levels"][values["attribute"]] + 1}
        assert (made.parent_id, made.status, made.kind, made.instruction) == (
            task.task_id,
            "pending",
            task.kind,
            question_of(made).text,
        )


def test_easier_goes_back() -> None:
    (edit,) = TOOL.propose(POWER, direction="harder", seed=1, count=1)
    harder = child(POWER, edit)
    (back,) = TOOL.propose(harder, direction="easier", seed=1, count=1)
    easier = question_of(child(harder, back)).family
    assert easier is not None and set(easier["levels"].values()) == {0}
    assert TOOL.propose(POWER, direction="easier", seed=1, count=1) == []


@pytest.mark.parametrize("held_out", [False, True])
def test_a_changed_question_stays_on_its_side(held_out: bool) -> None:
    for task in drawn("arithmetic", "counting", count=6, held_out=held_out):
        for edit in TOOL.propose(task, direction="harder", seed=2, count=2):
            assert is_held_out(TOOL.likeness(child(task, edit))) is held_out


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"attribute": "base", "level": 2, "item": 1}, "no level of base one away"),
        ({"attribute": "weight", "level": 1, "item": 1}, "no such attribute"),
        ({"attribute": "base", "level": 1, "item": -1}, "item must lie"),
        ({"attribute": "base", "level": "1", "item": 1}, "not a JSON object of"),
        (rewrite(), "not a JSON object of"),
        ("[" * 5000, "not a JSON object of"),
    ],
)
def test_edits_of_a_family_that_are_refused(edit: Any, reason: str) -> None:
    with pytest.raises(RejectedEdit, match=reason):
        child(POWER, edit)


def test_a_question_that_is_there_already_is_refused() -> None:
    (edit,) = TOOL.propose(POWER, direction="harder", seed=1, count=1)
    with pytest.raises(RejectedEdit, match="such a question already"):
        child(POWER, edit, taken=frozenset({TOOL.likeness(child(POWER, edit))}))


def test_an_imported_question_is_rewritten_and_has_no_levels() -> None:
    assert TOOL.propose(IMPORTED, direction="harder", seed=1, count=3) == []
    made = child(IMPORTED, rewrite())
    asked = question_of(made)
    assert (asked.text, asked.answer, asked.check, asked.source) == ("What is 40 plus 10?", "50", "number", "aime")
    assert made.kind == "aime"


def test_a_rewrite_may_equal_no_question_of_any_source() -> None:
    """A held-out file has other sources than the one that trains."""
    held_out = task_of_question(
        Question(text="What is 40  plus 10?\n", check="math", answer="50", source="aime2024"), split="test"
    )
    other = task_of_question(Question(text="Else?", check="math", answer="1", source="aime2024"), split="test")
    taken = ExistingTasks(TOOL, [IMPORTED, held_out, other, POWER])
    assert frozenset(taken.of(IMPORTED)) >= {TOOL.likeness(held_out), TOOL.likeness(other)}
    with pytest.raises(RejectedEdit, match="such a question already"):
        child(IMPORTED, rewrite("what is 40 PLUS 10?"), taken=frozenset(taken.of(IMPORTED)))
    child(IMPORTED, rewrite("What is 41 plus 10?", "51"), taken=frozenset(taken.of(IMPORTED)))


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (rewrite(answer="a lot"), "not one number"),
        (rewrite(answer="9" * 200), "not one number"),
        (rewrite(question=" "), "is empty"),
        (rewrite(question="?" * 5000), "longer than"),
        (rewrite(question=" what is 6  times 7?"), "such a question already"),
        ({"rewrite": {"question": "?"}}, "not a JSON object of"),
        ({"rewrite": {"question": "?", "answer": 5}}, "not a JSON object of"),
        ({"attribute": "base", "level": 1, "item": 1}, "not a JSON object of"),
    ],
)
def test_rewrites_that_are_refused(edit: Any, reason: str) -> None:
    with pytest.raises(RejectedEdit, match=reason):
        child(IMPORTED, edit)


def test_programming_problems_are_changed_elsewhere() -> None:
    (task,) = drawn("coding")
    with pytest.raises(RejectedEdit, match="coding changes those"):
        child(task, rewrite())


def test_a_model_is_asked_for_a_level_or_for_a_text() -> None:
    prompts = QuestionProposals()
    assert set(prompts.schema(POWER)["properties"]) == {"attribute", "level", "item"}
    assert "exponent: level 0 of 0 to 2" in prompts.messages(POWER, VIEW)[0]["content"]
    assert set(prompts.schema(IMPORTED)["properties"]) == {"rewrite"}
    assert "What is 6 times 7?" in prompts.messages(IMPORTED, VIEW)[0]["content"]


class Printing:
    """A tool that knows what a few programs print."""

    def __init__(self) -> None:
        self.closed = False

    async def call(self, call: Any) -> CallResult:
        texts = {ADDED: "50\n", LOOPED: "50.0", "print(3 * 3)": "9", "print(50)": "50"}
        return CallResult(text=texts[call.arguments["code"]], status="ok")

    async def close(self) -> None:
        self.closed = True


def refused(*programs: str, task: Task | None = None, asked: bool = True) -> str:
    """What the proof says where four programs are asked for and a model answers with these."""

    async def ask(messages: list[Message], samples: int) -> list[str]:
        assert "What is 40 plus 10?" in messages[0]["content"] and "50" not in messages[0]["content"] and samples == 4
        return [f"```python\n{program}\n```" for program in programs]

    proof = AnswerProof(Printing(), ask=ask if asked else None, solvers=4, agreement=0.5)
    return asyncio.run(proof(task or child(IMPORTED, rewrite())))


def test_two_different_programs_of_four_prove_an_answer() -> None:
    assert refused(ADDED, LOOPED, "print(3 * 3)", "print(3 * 3)") == ""


def test_too_few_programs_prove_nothing() -> None:
    assert refused(ADDED, "print(3 * 3)", "no program", "print(3 * 3)") == "1 of 4 programs print the claimed answer"


def test_one_program_written_often_is_one_witness() -> None:
    assert refused(ADDED, ADDED, ADDED, ADDED).startswith("all programs that print the claimed answer are one")


def test_a_program_that_states_the_answer_is_no_witness() -> None:
    assert refused(ADDED, "print(50)", "print(50)", "print(50)") == "1 of 4 programs print the claimed answer"
    assert not computes("print(50)") and not computes("x = 50\nprint(str(x))") and computes("print(sum([25, 25]))")


def test_a_wrong_claim_is_refused_however_well_the_programs_agree() -> None:
    wrong = child(IMPORTED, rewrite(answer="51"))
    assert refused(ADDED, LOOPED, ADDED, LOOPED, task=wrong) == "0 of 4 programs print the claimed answer"


def test_without_a_model_a_rewrite_is_unproven_and_a_level_needs_none() -> None:
    (edit,) = TOOL.propose(POWER, direction="harder", seed=1, count=1)
    assert refused(asked=False) == NOBODY
    assert refused(asked=False, task=child(POWER, edit)) == ""


def test_the_course_says_where_episodes_ended() -> None:
    calls, answered = [{"observation": "", "action": ">>> 1"}], {"observation": "", "action": "= 1"}
    course = round_course(
        POWER,
        [
            {"outcome": 1, "steps": [*calls, answered], "final_observation": TAKEN},
            {"outcome": -1, "steps": [*calls, answered], "final_observation": TAKEN},
            {"outcome": -1, "steps": calls * 3, "final_observation": "1"},
        ],
    )
    assert (course.episodes, course.won, course.spent) == (3, 1, (("call", 5), ("answer", 2)))
    assert [(phase.name, phase.ended, phase.steps) for phase in course.phases] == [
        ("calling", 1, 5),
        ("answering", 1, 2),
    ]
