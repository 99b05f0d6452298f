"""Generated questions as tasks: kinds take turns, held-out ones are apart, and a payload makes a question again."""

from __future__ import annotations

import json

import pytest
from rla_bridges.adapters.reasoning_items import is_held_out
from rla_programs.tool.families.registry import DEFAULT
from rla_programs.tool.generating import likeness_of, remade
from rla_programs.tool.questions import Question, question_of

from programs_tests.tool.questions import drawn
from rla.errors import UserError
from rla.store.records import Task


def test_kinds_take_turns() -> None:
    tasks = drawn("powers", "reasoning-gym:products", "coding", count=7)
    kinds = ["powers", "reasoning-gym:products", "coding"] * 2 + ["powers"]
    assert [task.kind for task in tasks] == [task.scene for task in tasks] == kinds


def test_no_kinds_are_the_default_ones() -> None:
    assert [task.kind for task in drawn(count=len(DEFAULT))] == list(DEFAULT)


@pytest.mark.parametrize(
    ("kind", "check"), [("gcd", "number"), ("reasoning-gym:spell_backward", "family"), ("coding", "code")]
)
def test_each_kind_says_how_it_is_checked(kind: str, check: str) -> None:
    (task,) = drawn(kind)
    asked = question_of(task)
    assert (asked.check, asked.text) == (check, task.instruction)
    assert (asked.family is None) == (asked.problem is not None) == (kind == "coding")


def test_no_question_is_on_both_sides_whatever_seed_and_level() -> None:
    training = {likeness_of(question_of(task)) for seed in (0, 1) for task in drawn(count=140, seed=seed)}
    held_out = {likeness_of(question_of(task)) for seed in (0, 2) for task in drawn(count=70, held_out=True, seed=seed)}
    harder = {likeness_of(question_of(task)) for task in drawn(count=70, held_out=True, level=2)}
    assert not training & (held_out | harder)
    assert all(map(is_held_out, held_out | harder)) and not any(map(is_held_out, training))


def levels_of(tasks: list[Task]) -> list[dict[str, int]]:
    return [dict((question_of(task).family or {})["levels"]) for task in tasks]


def test_attributes_of_our_families_have_levels_by_lot() -> None:
    """Of `arithmetic` there are two attributes: all four pairs of two levels come, and none twice with one question."""
    tasks = drawn("arithmetic", count=40, level=1, spread=1)
    found = levels_of(tasks)
    assert {tuple(sorted(one.items())) for one in found} == {
        (("digits", digits), ("terms", terms)) for digits in (1, 2) for terms in (1, 2)
    }
    assert len({task.instruction for task in tasks}) == 40
    assert tasks[:9] == drawn("arithmetic", count=9, level=1, spread=1)
    assert set(map(str, levels_of(drawn("arithmetic", count=9, level=1)))) == {"{'digits': 1, 'terms': 1}"}


def test_levels_of_other_kinds_take_turns() -> None:
    first, second, third = levels_of(drawn("reasoning-gym:products", count=3, spread=1))
    assert first == third != second
    problems = [json.loads(question_of(task).problem or "{}") for task in drawn("coding", count=12, spread=1)]
    assert {one["difficulty"] for one in problems} == {1, 2}


def test_equal_arguments_draw_equal_tasks_and_another_seed_others() -> None:
    assert drawn("powers", count=9) == drawn("powers", count=9)
    assert {task.task_id for task in drawn("powers", count=9)}.isdisjoint(
        task.task_id for task in drawn("powers", count=9, seed=1)
    )


@pytest.mark.parametrize("kind", ["search", "steps", "reasoning-gym:gcd"])
def test_a_payload_makes_its_question_again(kind: str) -> None:
    for task in drawn(kind, count=3):
        asked = question_of(task)
        made = remade(asked)
        assert made is not None
        assert (made.question, made.answer) == (asked.text, asked.answer)


def test_a_family_without_a_program_has_questions_and_no_teacher() -> None:
    (task,) = drawn("reasoning-gym:simple_equations")
    assert remade(question_of(task)) is None


def test_a_payload_that_names_no_family_is_refused() -> None:
    broken = Question(text="?", check="number", answer="1", source="gcd", family={"package": "elsewhere"})
    with pytest.raises(UserError, match="make the tasks again"):
        remade(broken)


@pytest.mark.parametrize(
    ("kinds", "complaint"),
    [
        (("powerz",), "did you mean powers"),
        (("reasoning-gym:prodcts",), "tasks.kinds is 'prodcts'.*did you mean products"),
        (("reasoning-gym:rush_hour",), "keeps no answers"),
        (("reasoning-gym:codeio",), "it runs code"),
        (("gcd", "gcd"), "twice"),
    ],
)
def test_kinds_that_cannot_be_drawn_are_refused(kinds: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        drawn(*kinds)
