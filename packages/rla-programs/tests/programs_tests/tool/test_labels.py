"""Ground truth about rounds, and the judge that is taught on it."""

from __future__ import annotations

from typing import Any

import pytest
from rla_programs.tool.environment import Tool
from rla_programs.tool.episode import TAKEN
from rla_programs.tool.generating import remade
from rla_programs.tool.labels import (
    CALCULATES,
    FAILED,
    GUESSED,
    IGNORED,
    MISLED,
    MISSES,
    READ,
    REPEATED,
    ROUND_REASONS,
    UNREAD,
    failed_round,
    labels_of_actions,
    labels_seen,
)
from rla_programs.tool.params import ToolParams
from rla_programs.tool.questions import Question, question_of, task_of_question

from programs_tests.tool.questions import HERMES, SHORT, drawn
from rla.envs.chat_prompts import PlainJudge
from rla.envs.protocols import Labelled, SeenStep
from rla.rollouts.labels import PlayedEpisode, label_episodes
from rla.store.records import Task
from tests.unit.builders import configured

(SUM,) = drawn("arithmetic")
ANSWER = question_of(SUM).answer
CALL = f">>> {remade(question_of(SUM)).rounds[-1].program}"  # type: ignore[union-attr]
OTHER = ">>> print(100*200)"
OWN = ToolParams(format="short")


def seen(*rounds: tuple[str, str], task: Task = SUM, status: str = "ok") -> list[tuple[int, str]]:
    """Score and reason of each (action, answer). `status`: of the calls."""
    steps = [
        SeenStep(action=action, answer=answer, statuses=[status] * len(SHORT.parse(action).calls))
        for action, answer in rounds
    ]
    return [(one.score, one.reason) for one in labels_seen(task, SHORT, steps)]


def test_a_call_that_finds_the_answer_and_the_answer_that_is_read() -> None:
    assert seen((CALL, ANSWER), (f"= {ANSWER}", TAKEN)) == [(1, CALCULATES), (1, READ)]


def test_whatever_the_program_its_result_decides() -> None:
    assert seen((">>> import sympy as s\nprint(s.f())", ANSWER), (f"= {ANSWER}", TAKEN))[0] == (1, CALCULATES)


def test_a_wrong_result_that_is_believed() -> None:
    assert seen((OTHER, "20000"), ("= 20000", TAKEN)) == [(-1, MISSES), (-1, MISLED)]


def test_a_right_result_that_is_ignored() -> None:
    assert seen((CALL, ANSWER), ("= 7", TAKEN)) == [(1, CALCULATES), (-1, IGNORED)]


def test_answers_without_a_result() -> None:
    assert seen(("= 7", TAKEN)) == [(-1, GUESSED)]
    assert seen((f"= {ANSWER}", TAKEN)) == [(1, UNREAD)]
    assert seen(("I do not know", TAKEN)) == [(-1, GUESSED)]


def test_a_repeated_call_is_useless() -> None:
    assert seen((CALL, ANSWER), (CALL, ANSWER), (f"= {ANSWER}", TAKEN)) == [(1, CALCULATES), (-1, REPEATED), (1, READ)]


@pytest.mark.parametrize("status", ["error", "timeout", "memory", "output", "malformed", "unknown", "excess", "absent"])
def test_a_call_that_did_not_run_to_its_end_failed(status: str) -> None:
    assert seen((CALL, ANSWER), (f"= {ANSWER}", TAKEN), status=status) == [(-1, FAILED), (1, UNREAD)]


def test_so_did_one_that_printed_nothing_and_one_that_nobody_answered() -> None:
    assert seen((CALL, "The program printed nothing.")) == [(-1, FAILED)]
    assert failed_round(SeenStep(action=CALL, answer=ANSWER))  # its episode ended at a limit


@pytest.mark.parametrize(
    "printed",
    [
        "The program is\n{}",
        "The call is made.\n{}",
        "There is no remainder: {}",
        "ValueError: not a number",
        "Not run: nothing",
        "code_interpreter needs 42",
    ],
)
def test_what_a_program_prints_is_no_failure_however_it_looks(printed: str) -> None:
    text = printed.format(ANSWER)
    assert seen((CALL, text))[0][1] in (CALCULATES, MISSES)
    assert seen((CALL, text), ("= 7", TAKEN))[1] == (-1, IGNORED)  # there was a result


def test_a_reply_with_one_good_call_of_two_did_not_fail() -> None:
    step = SeenStep(action=f"{OTHER}\n{CALL}", answer=f"20000\n\n{ANSWER}", statuses=["error", "ok"])
    assert [one.reason for one in labels_seen(SUM, SHORT, [step])] == [CALCULATES]


def test_a_step_of_the_teachers_way_is_useful() -> None:
    (task,) = drawn("steps")
    made = remade(question_of(task))
    assert made is not None
    first, second = made.rounds
    found = seen((f">>> {first.program}", first.printed), (f">>> {second.program}", second.printed), task=task)
    assert found == [(1, CALCULATES), (1, CALCULATES)]


def test_an_equal_number_is_right_however_it_is_written() -> None:
    assert seen((CALL, f"{ANSWER}.0"), (f"= {ANSWER}.00", TAKEN)) == [(1, CALCULATES), (1, READ)]


def test_nothing_is_known_of_questions_that_no_family_has_made() -> None:
    task = task_of_question(Question(text="?", check="number", answer="42", source="imported"), split="train")
    assert labels_seen(task, SHORT, [SeenStep(action="= 42", answer=TAKEN)]) == []
    assert labels_of_actions(task, SHORT, OWN, ["= 42"]) == []


def of_actions(*actions: str, others: int = 0) -> list[list[Labelled]]:
    return labels_of_actions(SUM, SHORT, OWN, actions, others=others)


def test_answers_of_known_programs_are_told_without_a_run() -> None:
    found = of_actions(OTHER, CALL, f"= {ANSWER}")
    assert [one.next_observation for (one,) in found] == ["20000", ANSWER, TAKEN]
    assert [one.reason for (one,) in found] == [MISSES, CALCULATES, READ]


def test_a_program_that_does_not_compile_has_its_error_as_the_answer() -> None:
    ((one,),) = of_actions(">>> print(1")
    assert one.next_observation.endswith("SyntaxError: '(' was never closed") and one.reason == FAILED


@pytest.mark.parametrize("program", ["print(open('/etc/passwd').read())", "x = 1", "while True: pass"])
def test_where_a_program_is_not_known_nothing_is_labelled(program: str) -> None:
    assert of_actions(f">>> {program}", "= 1") == []


def test_others_are_replies_of_the_same_place_with_labels_of_their_own() -> None:
    first, last = of_actions(CALL, f"= {ANSWER}", others=3)
    assert len(first) == len(last) == 4 and len({one.action for one in first}) == 4
    assert {one.score for one in first} == {1, -1}
    assert all(one.score == -1 for one in last[1:])  # the call again, a slip, a broken call, a guess


@pytest.mark.parametrize("calls", [SHORT, HERMES], ids=["short", "hermes"])
def test_demonstrations_are_labelled_whole(calls: Any) -> None:
    env, name = Tool(), "short" if calls is SHORT else "hermes"
    config = configured(f"env.own.format={name}", env="tool")
    for number, task in enumerate(drawn("powers", "steps", "reasoning-gym:gcd", count=30)):
        shown = env.demonstrate(task, config, seed=number, random_share=0.7)
        found = env.label(task, config, shown.actions)
        assert [one.next_observation for (one,) in found] == [*shown.observations[1:], shown.final_observation]
        assert (found[-1][0].score == 1) is shown.won


def test_played_episodes_are_labelled_by_what_was_seen() -> None:
    played = PlayedEpisode(
        trajectory_id="a",
        task_id=SUM.task_id,
        actions=[">>> import sympy", "= 7"],
        answers=["no such module", TAKEN],
        statuses=[["error"], []],
    )
    config = configured("env.own.format=short", env="tool")
    found = label_episodes([played], {SUM.task_id: SUM}, labeller=Tool(), config=config)
    assert found.frame["label"].to_list() == [-1, -1] and found.unlabelled == 0


def test_where_a_shard_says_nothing_of_calls_nothing_is_labelled() -> None:
    played = PlayedEpisode(trajectory_id="a", task_id=SUM.task_id, actions=["= 7"], answers=[TAKEN])
    config = configured("env.own.format=short", env="tool")
    assert label_episodes([played], {SUM.task_id: SUM}, labeller=Tool(), config=config).unlabelled == 1


def test_the_small_judge_can_say_every_reason() -> None:
    judge = Tool().judge_prompt(configured("judge.prompt=plain", env="tool"))
    assert {judge.render(score, reason) for reason in ROUND_REASONS for score in (1, -1)} == set(judge.replies())
    assert judge.parse(judge.render(-1, MISSES)) == -1


def test_every_reply_of_the_plain_judge_that_a_reason_of_rounds_begins_is_read() -> None:
    judge = PlainJudge(reasons=ROUND_REASONS)
    for reply in judge.replies():
        assert judge.parse(reply) == (1 if reply.endswith("+1") else -1)
