"""Families of our own: what they ask, that their programs print their answers, and that higher levels ask for more."""

from __future__ import annotations

import contextlib
import io
import random
from collections import Counter

import pytest
from rla_bridges.adapters.reasoning_families import opened_family
from rla_bridges.adapters.reasoning_items import Item, known_answer, made_entry
from rla_programs.tool.families.generated import Made, QuestionFamily, slip_of
from rla_programs.tool.families.numbers import ARITHMETIC, POWERS, SEARCH
from rla_programs.tool.families.reasoning_programs import PROGRAMS, teacher_program
from rla_programs.tool.families.registry import OWN, drawn_levels, known_output, question_family
from rla_programs.tool.families.texts import COUNTING

from rla.errors import UserError

FAMILIES = list(OWN.values())
HIGHEST = 9


def printed(program: str) -> str:
    """What a program of ours prints; it is run in this process."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        exec(program, {})  # our own text
    return told.getvalue()


def levels_at(family: QuestionFamily, level: int) -> dict[str, int]:
    return drawn_levels(family, [level], random.Random(0))


def items(family: QuestionFamily, level: int, count: int) -> list[Made]:
    return [family.item(levels_at(family, level), 1, index) for index in range(count)]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize("level", (0, 1, HIGHEST))
def test_every_program_prints_what_its_round_says_and_the_last_the_answer(family: QuestionFamily, level: int) -> None:
    for made in items(family, level, 12):
        assert [printed(one.program) for one in made.rounds] == [f"{one.printed}\n" for one in made.rounds]
        assert made.rounds[-1].printed == made.answer


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_questions_and_answers_are_short(family: QuestionFamily) -> None:
    for level in (0, HIGHEST):
        for made in items(family, level, 50):
            assert len(made.question) <= 60 and len(made.answer) <= 12


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_no_answer_is_so_common_that_guessing_pays(family: QuestionFamily) -> None:
    answers = Counter(made.answer for made in items(family, 0, 400))
    assert answers.most_common(1)[0][1] / 400 < 0.08


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_equal_arguments_make_equal_items_and_other_indices_others(family: QuestionFamily) -> None:
    levels = levels_at(family, 0)
    assert family.item(levels, 5, 3) == family.item(levels, 5, 3)
    assert len({family.item(levels, 5, index).question for index in range(20)}) > 15


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_slip_is_another_program_with_another_answer(family: QuestionFamily) -> None:
    levels = levels_at(family, 0)
    for index in range(12):
        right, wrong = family.item(levels, 1, index), family.slipped(levels, 1, index, random.Random(index))
        assert wrong.answer != right.answer
        assert [printed(one.program) for one in wrong.rounds] == [f"{one.printed}\n" for one in wrong.rounds]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_each_level_makes_another_question_of_the_same_draw(family: QuestionFamily) -> None:
    for name, top in family.tops.items():
        made = [family.item({**levels_at(family, 0), name: level}, 1, 4).question for level in range(top + 1)]
        assert len(set(made)) == top + 1, name


def test_what_families_ask() -> None:
    assert ARITHMETIC.results(["12-3*4+100"]) == ["100"]  # 12 - 12 + 100
    assert POWERS.results(["3", "4", "50"]) == ["31"]  # 81 = 50 + 31
    assert COUNTING.results(["a", "abca", "10"]) == ["20"]
    assert SEARCH.results(["5", "7", "2"]) == ["10"]  # 10 * 10 leaves 2; 25, 36, 49, 64 and 81 leave 4, 1, 0, 1, 4
    assert SEARCH.results(["5", "7", "3"]) is None  # no square leaves 3


def test_levels_are_numbers_of_terms_and_of_digits() -> None:
    text = ARITHMETIC.item({"terms": 3, "digits": 2}, 1, 0).question
    numbers = text.removeprefix("Compute ").removesuffix(".").replace("*", "+").replace("-", "+").split("+")
    assert [len(number) for number in numbers] == [5] * 5


@pytest.mark.parametrize(
    ("program", "output"),
    [
        ("print(12*3)", "36"),
        ("print(pow(3,4,50))", "31"),
        ("print(('ab'*3).count('b'))", "3"),
        ("import math;print(math.gcd(12,18))", "6"),
        ("print(pow(3,4,0))", None),  # an exception, which nobody computes here
        ("print(012*3)", None),  # a syntax error
        ("print(12*3)\nprint(1)", None),
        ("print(('ab'*99999999).count('b'))", None),  # would not fit into memory
        ("print(next(n for n in range(1,9**9) if n*n%99999999==2))", None),  # would be looked for for long
        ("print(sum(map(int,str(12345**99999999))))", None),
        ("import os;os.system('true')", None),
    ],
)
def test_outputs_of_known_shapes_are_known_without_a_run(program: str, output: str | None) -> None:
    assert known_output(program) == output


def test_a_slip_changes_one_sign() -> None:
    assert {len(slip_of("12-3", random.Random(seed))) for seed in range(30)} <= {3, 4}
    assert all("-" in slip_of("12-3", random.Random(seed)) for seed in range(30))


def test_an_unknown_family_is_refused_with_its_neighbour() -> None:
    with pytest.raises(UserError, match="did you mean powers"):
        question_family("power")


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_reasoning_gym_print_the_packages_answers(name: str) -> None:
    family, tried = opened_family(name), 0
    for level in (0, 2):
        for index in range(8):
            item = Item(family=name, levels=family.at(level), values={}, seed=3, index=index)
            answer = known_answer(item)
            program = teacher_program(name, made_entry(item))
            assert program is not None
            if answer is not None:
                assert printed(program) == f"{answer}\n"
                tried += 1
    assert tried > 8
