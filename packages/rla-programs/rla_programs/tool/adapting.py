"""Edits of questions: by the levels of their family, or rewritten by a language model if they have no family.

    {"attribute": "digits", "level": 2, "item": 1701}                      questions of a family, one level away
    {"rewrite": {"question": "...", "answer": "..."}}                      imported questions

A child from a family has an answer by construction. The answer of a rewritten question is a number that the model
claims; `AnswerProof` accepts it only if programs written from the question alone print it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rla_bridges.adapters.reasoning_families import Family, opened_family
from rla_bridges.adapters.reasoning_items import Item
from rla_bridges.adapters.reasoning_levels import FIELDS, GYM, LevelPrompt, drawn_level_edits, moved_item

from rla.envs.authoring import changed_task, edit_values, is_text
from rla.envs.chat_prompts import QUOTED, quoted
from rla.envs.protocols import Course, Message, Phase, ProposalPrompt, ProposalView, RejectedEdit
from rla.store.records import Direction, Task
from rla_programs.tool.answer_reading import number_in
from rla_programs.tool.episode import TAKEN
from rla_programs.tool.families.generated import QuestionFamily
from rla_programs.tool.families.registry import question_family
from rla_programs.tool.generating import OWN_PACKAGE, likeness_of, package_and_item, question_of_item
from rla_programs.tool.questions import Question, question_of
from rla_programs.tool.results import harmless

REWRITE = "rewrite"
QUESTION_FIELDS = frozenset({*FIELDS, REWRITE})
REWRITTEN: Mapping[str, type] = {"question": str, "answer": str}
LONGEST_QUESTION, LONGEST_ANSWER = 4000, 100
RUBRIC = (
    "You change questions on which an agent learns to answer with the help of Python programs. Make this one {wanted}. "
    "Stay close to it in topic and skill. The new question has to say everything that is needed, and its answer has to "
    "be one number. Programs that others write from your question alone have to print your answer, so it has to be "
    "right.\n\n" + QUOTED
)
ENDING = 'Answer with one JSON object: {"rewrite": {"question": ..., "answer": ...}}, both texts.'


class QuestionItems:
    """`LevelledItems` of questions made by a family, ours or one of reasoning-gym."""

    def __init__(self, package: str) -> None:
        self._package = package

    def item_of(self, task: Task) -> Item | None:
        found = package_and_item(question_of(task))
        return None if found is None else found[1]

    def tops(self, item: Item) -> Mapping[str, int]:
        return self._family(item).tops

    def about(self, item: Item) -> Mapping[str, str]:
        return self._family(item).about

    def other_at(self, item: Item, attribute: str, level: int) -> bool:
        return self._package == OWN_PACKAGE or GYM.other_at(item, attribute, level)

    def asked(self, item: Item) -> str | None:
        made = question_of_item(self._package, item)
        return None if made is None else made.text

    def _family(self, item: Item) -> QuestionFamily | Family:
        return question_family(item.family) if self._package == OWN_PACKAGE else opened_family(item.family)


def _items_of(task: Task) -> QuestionItems:
    found = package_and_item(question_of(task))
    return QuestionItems(OWN_PACKAGE if found is None else found[0])


def drawn_question_edits(task: Task, *, direction: str, seed: int, count: int) -> list[str]:
    """Up to `count` edits of one level; none for a question without a family."""
    return drawn_level_edits(task, direction=direction, seed=seed, count=count, source=_items_of(task))


def child_of_question(task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
    """The pending task that results from an edit of `task`. Raises RejectedEdit."""
    asked = question_of(task)
    known = {*taken, task_likeness(task), task_likeness(root)}
    found = package_and_item(asked)
    if found is not None:
        values, item, _ = moved_item(task, edit, QuestionItems(found[0]), taken=known)
        child = question_of_item(found[0], item)
        assert child is not None  # `moved_item` returns items with known answers
    else:
        values = _rewritten_values(edit)
        child = _rewritten_question(asked, values[REWRITE])
        if likeness_of(child) in known:
            raise RejectedEdit("there is such a question already")
    return changed_task(task, content=asdict(child), edit=values, taken=taken, created=created, instruction=child.text)


def _rewritten_values(edit: str) -> dict[str, Any]:
    """Raises RejectedEdit if the edit is not a rewrite."""
    values = edit_values(edit, {REWRITE: dict})
    return {REWRITE: edit_values(json.dumps(values[REWRITE]), REWRITTEN)}


def _rewritten_question(parent: Question, fields: Mapping[str, str]) -> Question:
    """A claim: the answer is not proven. Raises RejectedEdit."""
    text, answer = harmless(fields["question"]).strip(), fields["answer"].strip()
    if parent.check == "code":
        raise RejectedEdit("a programming problem is not rewritten here; env.name: coding changes those")
    if not (text and is_text(text, longest=LONGEST_QUESTION)):
        raise RejectedEdit(f"the question is empty, no text, or longer than {LONGEST_QUESTION} characters")
    if len(answer) > LONGEST_ANSWER or number_in(answer) is None:
        raise RejectedEdit("the answer is not one number")
    return Question(text=text, check="number", answer=answer, source=parent.source)


def task_likeness(task: Task) -> str:
    return likeness_of(question_of(task))


def round_course(task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
    """Two phases: calling the tool, then answering. An episode that ended without an answer ended while calling."""
    steps, lost = [0, 0], [0, 0]
    for episode in episodes:
        answered = int(bool(episode["steps"]) and episode["final_observation"] == TAKEN)
        steps[0] += len(episode["steps"]) - answered
        steps[1] += answered
        lost[answered] += episode["outcome"] != 1
    names = (("calling", "calling the tool"), ("answering", "answering"))
    return Course(
        episodes=len(episodes),
        won=len(episodes) - sum(lost),
        phases=tuple(
            Phase(name=name, about=about, ended=ended, steps=count)
            for (name, about), ended, count in zip(names, lost, steps, strict=True)
        ),
        spent=tuple((name, count) for name, count in zip(("call", "answer"), steps, strict=True) if count),
    )


class QuestionProposals:
    """A `ProposalPrompt`: a level of the family, or a new text if the question has no family."""

    criticised = False

    def messages(self, task: Task, view: ProposalView) -> list[Message]:
        found = self._levels(task)
        if found is not None:
            return found.messages(task, view)
        asked = question_of(task)
        wanted = "harder, but still solvable" if view.direction == Direction.HARDER else "easier"
        parts = {
            "Question": asked.text,
            "Answer": asked.answer,
            "Course": f"{view.accuracy:.0%} are right. {view.critique}",
        }
        return [{"role": "user", "content": f"{RUBRIC.format(wanted=wanted)}\n\n{quoted(parts)}\n\n{ENDING}"}]

    def schema(self, task: Task) -> Mapping[str, Any]:
        found = self._levels(task)
        if found is not None:
            return found.schema(task)
        lengths = {"question": LONGEST_QUESTION, "answer": LONGEST_ANSWER}
        inner = {name: {"type": "string", "minLength": 1, "maxLength": most} for name, most in lengths.items()}
        return _object({REWRITE: _object(inner)})

    def _levels(self, task: Task) -> ProposalPrompt | None:
        items = _items_of(task)
        return None if items.item_of(task) is None else LevelPrompt(items)


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": sorted(properties),
        "additionalProperties": False,
    }
