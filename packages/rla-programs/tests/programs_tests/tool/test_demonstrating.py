"""What a teacher shows: a call, its result, the answer; and demonstrations that are weak in a known way."""

from __future__ import annotations

from collections import Counter

import pytest
from rla_programs.tool.calls import CallFormat, Malformed
from rla_programs.tool.demonstrating import final_reply, solver_reply, taught_rounds
from rla_programs.tool.episode import TAKEN
from rla_programs.tool.questions import question_of
from rla_programs.tool.stitching import stitched
from rla_programs.tool.vocabulary import question_texts

from programs_tests.tool.questions import HERMES, SHORT, drawn
from rla.envs.protocols import Demonstration
from rla.errors import UserError
from rla.models.init import new_tokenizer
from rla.store.records import Task

(POWER,) = drawn("powers")
(STEPS,) = drawn("steps")


def shown(task: Task, calls: CallFormat = SHORT, *, share: float = 0.0, seed: int = 1) -> Demonstration:
    return taught_rounds(task, calls, seed=seed, random_share=share)


def weak(kind: str, calls: CallFormat) -> list[Demonstration]:
    """Weak demonstrations of one kind, by what they look like."""
    found = [shown(POWER, calls, share=1.0, seed=seed) for seed in range(40)]
    told = {
        "guess": lambda one: len(one.actions) == 1,
        "slip": lambda one: len(one.actions) == 2,
        "broken": lambda one: len(one.actions) == 3,
    }
    return [one for one in found if told[kind](one)]


def test_a_teacher_calls_the_tool_and_answers_with_what_it_read() -> None:
    asked = question_of(POWER)
    numbers = asked.text.removeprefix("Compute ").removesuffix(".").replace(" mod ", "^").split("^")
    assert shown(POWER) == Demonstration(
        observations=[asked.text, asked.answer],
        commands=[(), ()],
        actions=[f">>> print(pow({','.join(numbers)}))", f"= {asked.answer}"],
        final_observation=TAKEN,
        won=True,
    )


def test_a_chat_model_is_shown_a_box() -> None:
    assert shown(POWER, HERMES).actions[-1] == f"\\boxed{{{question_of(POWER).answer}}}"
    assert shown(POWER, HERMES).actions[0].startswith("<tool_call>")


def test_two_steps_take_two_calls() -> None:
    demonstration = shown(STEPS)
    assert len(demonstration.actions) == 3 and demonstration.observations[1] in demonstration.actions[1]


def test_equal_seeds_show_the_same() -> None:
    assert [shown(POWER, share=0.5, seed=n) for n in range(9)] == [shown(POWER, share=0.5, seed=n) for n in range(9)]


def test_weak_kinds_come_in_their_shares() -> None:
    kinds = Counter(len(shown(POWER, share=1.0, seed=seed).actions) for seed in range(200))
    assert kinds.keys() == {1, 2, 3} and 75 < kinds[2] < 125  # half are slips


@pytest.mark.parametrize("calls", [SHORT, HERMES])
def test_a_slip_and_a_guess_are_wrong(calls: CallFormat) -> None:
    answer = final_reply(calls, question_of(POWER).answer)
    for one in [*weak("slip", calls), *weak("guess", calls)]:
        assert not one.won and one.actions[-1] != answer


@pytest.mark.parametrize("calls", [SHORT, HERMES])
def test_a_broken_call_is_mended(calls: CallFormat) -> None:
    for one in weak("broken", calls):
        assert one.won and one.actions[1:] == shown(POWER, calls).actions


def test_a_broken_call_of_hermes_cannot_be_read() -> None:
    assert all(isinstance(HERMES.parse(one.actions[0]).calls[0], Malformed) for one in weak("broken", HERMES))


@pytest.mark.parametrize("kind", ["coding", "reasoning-gym:simple_equations"])
def test_a_question_without_a_program_has_no_demonstration(kind: str) -> None:
    with pytest.raises(UserError, match="has no program to show"):
        shown(drawn(kind)[0])


def test_the_scripted_solver_answers_with_the_result_that_it_was_given() -> None:
    call = solver_reply(POWER, [], SHORT)
    assert call == shown(POWER).actions[0]
    assert solver_reply(POWER, [(call, "41")], SHORT) == "= 41"
    assert solver_reply(POWER, [(call, question_of(POWER).answer)], SHORT) == shown(POWER).actions[1]


def test_a_stitched_trajectory_states_the_value_before_the_call() -> None:
    asked = question_of(POWER)
    for seed in range(9):
        one = stitched(POWER, SHORT, seed=seed)
        said, _, code = one.actions[0].partition("\n")
        assert said == f"Step 1 gives {asked.answer}." and code.startswith(">>> ")
        assert one.observations == [asked.text, asked.answer]  # pasted, whatever the code prints
        assert one.actions[1] == f"So it is {asked.answer}.\n= {asked.answer}"


def test_two_thirds_of_stitched_calls_are_fragments() -> None:
    whole = shown(POWER).actions[0]
    calls = [stitched(POWER, SHORT, seed=seed).actions[0].partition("\n")[2] for seed in range(150)]
    assert 30 < calls.count(whole) < 70
    assert {call for call in calls if call != whole} == {">>> print(x)", ">>> x=" + whole.partition("print(")[2][:-1]}
    assert {stitched(POWER, SHORT, seed=seed, fragments=0.0).actions[0].partition("\n")[2] for seed in range(9)} == {
        whole
    }


def test_the_small_tokenizer_spells_what_is_copied_the_same_way_everywhere() -> None:
    tokenizer = new_tokenizer(question_texts(drawn(count=210), SHORT, seed=0), context=256, exact=True)
    copied = ["e", "l", "l", "u", "v", "'*", "7", "0", "9"]
    for text in ("How often is 'u' in 'elluv'*709?", ">>> print(('elluv'*709).count('u'))"):
        tokens = tokenizer.tokenize(text)
        assert tokens[(at := tokens.index("e")) : at + len(copied)] == copied


def test_a_task_without_a_teacher_gives_its_question_and_answer() -> None:
    (task,) = drawn("reasoning-gym:simple_equations")
    asked = question_of(task)
    assert list(question_texts([task], SHORT, seed=0))[1:] == [asked.text, asked.answer]
