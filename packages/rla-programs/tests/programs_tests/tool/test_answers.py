"""Whether a reply answers its question, by each check."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from rla_bridges.adapters.reasoning_items import Item, made_entry
from rla_programs.coding.data.checkers import Checker, CheckerKind
from rla_programs.coding.data.problems import CallTest, Problem, StdioTest, problem_payload
from rla_programs.coding.running import Runner
from rla_programs.execution.records import ExecutionConfig
from rla_programs.tool.answer_processes import AnswerProcesses
from rla_programs.tool.answers import Verifier, alternatives, answer_class, last_program, may_be_math
from rla_programs.tool.questions import Question

from rla.envs.observation import EnvironmentFailure

ITEM: dict[str, Any] = {"family": "chain_sum", "levels": {}, "values": {}, "seed": 1, "index": 0}


def question(answer: str, check: str = "math", **fields: Any) -> Question:
    return Question(text="?", check=check, answer=answer, source="test", **fields)  # type: ignore[arg-type]


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(main)


async def rated(asked: list[tuple[Question, str]], **options: Any) -> list[float]:
    verifier = Verifier(workers=1, **options)
    try:
        return [await verifier.right(one, reply) for one, reply in asked]
    finally:
        await verifier.close()


def scores(asked: list[tuple[Question, str]], **options: Any) -> list[float]:
    found: list[float] = run(rated(asked, **options))
    return found


def test_mathematics_is_equal_by_value() -> None:
    right = [
        ("\\frac{1}{2}", "0.5"),
        ("x^2-1", "(x-1)(x+1)"),
        ("\\{1,2\\}", "\\{2,1\\}"),
        ("\\sqrt{8}", "2\\sqrt 2"),
        ("5", "x = 5"),
        ("East", "\\text{East}"),
        ("[1,2)", "[1, 2)"),
        ('["3", "4"]', "4"),  # alternatives
    ]
    wrong = [("3", "3 \\text{ or } 4"), ("3", "1,2,3"), ("1/3", "0.333"), ("42", "43"), ("[1,2)", "[1,2]")]
    asked = [(question(gold), f"so \\boxed{{{answer}}}") for gold, answer in [*right, *wrong]]
    assert scores(asked) == [1.0] * len(right) + [0.0] * len(wrong)


def test_hostile_answers_are_wrong_and_what_follows_is_compared() -> None:
    hostile = ["10^{10^{10^{10}}}", "9!!!!!!"]
    asked = [(question("42"), f"\\boxed{{{answer}}}") for answer in hostile]
    assert scores([*asked, (question("x^2-1"), "\\boxed{(x-1)(x+1)}")], cpu_s=0.5) == [0.0, 0.0, 1.0]


def test_no_answer_pays_for_the_loading_of_packages() -> None:
    """The first comparison takes 0.4 s of processor time where nothing was loaded, so it was lost on a busy machine."""
    program = (
        "import time; from rla_programs.tool.answer_worker import load_comparison; compare = load_comparison('math'); "
        "begun = time.process_time(); assert compare({'gold': ['y^2-4'], 'answer': '(y-2)(y+2)'}) == 1.0; "
        "print(time.process_time() - begun)"
    )
    told = subprocess.run([sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True)
    assert float(told.stdout) < 0.2


def test_what_is_too_long_or_too_deep_is_given_to_nobody() -> None:
    hostile = ["1" + "+1" * 50_000, "\\sqrt{" * 60 + "1" + "}" * 60, "1} \\boxed{42", "\\boxed{42"]
    assert not any(map(may_be_math, hostile))
    assert may_be_math("\\left\\{1, \\frac{1}{2}\\right\\}")
    begun = time.process_time()
    assert scores([(question("42"), f"= {text}") for text in hostile]) == [0.0] * 4
    assert time.process_time() - begun < 2  # no process was started


HANGS = """
import json, sys, time
print('"ready"', flush=True)
for line in sys.stdin:
    time.sleep(60 if json.loads(line)["answer"] == "hangs" else 0)
    print(1.0, flush=True)
"""


def test_a_process_that_waits_is_killed_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rla_programs.tool.answer_processes.START", HANGS)

    async def main() -> tuple[Any, Any]:
        pool = AnswerProcesses("math", workers=1, cpu_s=60.0, wall_s=0.5)
        try:
            slow = await pool.compared({"answer": "hangs"})
            return slow, await pool.compared({"answer": "x"})
        finally:
            await pool.close()

    assert run(main()) == (None, 1.0)


@pytest.mark.parametrize("known", [True, False], ids=["whose death is known", "that has just died"])
def test_a_process_that_died_idle_is_replaced_and_its_successor_asked(known: bool) -> None:
    request = {"gold": ["x"], "answer": "x"}

    async def main() -> tuple[Any, Any, int]:
        pool = AnswerProcesses("math", workers=1, cpu_s=60.0, wall_s=60.0)
        try:
            first = await pool.compared(request)
            (idle,) = pool._idle
            os.kill(idle.process.pid, signal.SIGKILL)
            if known:
                idle.process.wait()
            else:
                os.waitid(os.P_PID, idle.process.pid, os.WEXITED | os.WNOWAIT)
            return first, await pool.compared(request), len(pool._idle)
        finally:
            await pool.close()

    assert run(main()) == (1.0, 1.0, 1)


def test_a_new_process_that_dies_unasked_says_nothing_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ready and then dead, as one that the system kills."""
    monkeypatch.setattr("rla_programs.tool.answer_processes.START", "print('\"ready\"')")

    async def main() -> Any:
        pool = AnswerProcesses("math", workers=1, cpu_s=60.0, wall_s=60.0)
        try:
            start = pool._started

            def started_and_dead() -> Any:
                comparer = start()
                comparer.process.wait()
                return comparer

            monkeypatch.setattr(pool, "_started", started_and_dead)
            return await pool.compared({})
        finally:
            await pool.close()

    with pytest.raises(EnvironmentFailure, match="died before it was asked"):
        run(main())


def test_a_process_that_does_not_start_is_a_failure() -> None:
    async def main() -> None:
        pool = AnswerProcesses("math", workers=1, cpu_s="no number", wall_s=1.0)  # type: ignore[arg-type]
        try:
            await pool.compared({})
        finally:
            await pool.close()

    with pytest.raises(EnvironmentFailure, match="did not start"):
        run(main())


def test_numbers_letters_and_exact_texts() -> None:
    asked = [
        (question("1234.5", "number"), "\\boxed{1,234.50}"),
        (question("1234.5", "number"), "= 2469/2"),
        (question("1234.5", "number"), "\\boxed{1234}"),
        (question("7", "number"), "I do not know"),
        (question("c", "choice"), "\\boxed{(C).}"),
        (question("C", "choice"), "\\boxed{CD}"),
        (question("a b", "exact"), "\\boxed{a b}"),
        (question("a b", "exact"), "\\boxed{a  b}"),
        (question("nothing", "number"), "\\boxed{nothing}"),  # not a number on either side
    ]
    assert scores(asked) == [1, 1, 0, 0, 1, 0, 1, 0, 0]


CAPITAL = "Which is the capital of France?\n(A) Paris\n(B) London\n(C) The city of Rome\n(D) $\\frac{1}{2}$"


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("A", 1),
        ("a", 1),
        ("(A)", 1),
        ("A.", 1),
        ("A)", 1),
        ("\\text{A}", 1),
        ("**A**", 1),
        ("\\textbf{(A)}", 1),
        ("A) Paris", 1),
        ("(A) Paris.", 1),
        ("A. Paris", 1),
        ("A: paris", 1),
        ("\\text{A) Paris}", 1),
        ("\\text{(A)}\\ \\text{Paris}", 1),
        ("A - Paris", 1),
        ("Paris", 1),
        ("\\text{Paris}", 1),
        ("Option A", 1),
        ("The answer is (A)", 1),
        ("B", 0),
        ("B) London", 0),
        ("B) Paris", 0),  # a wrong letter with the right text
        ("A) London", 0),  # the right letter with another option's text
        ("London", 0),
        ("A or B", 0),
        ("A, B", 0),
        ("A) or B)", 0),
        ("AB", 0),
        ("not A", 0),
        ("Paris or London", 0),
        ("A) Paris (B) London", 0),
        ("", 0),
    ],
)
def test_a_choice_is_a_letter_its_text_or_both(answer: str, right: float) -> None:
    asked = Question(text=CAPITAL, check="choice", answer="A", source="test")
    assert scores([(asked, f"\\boxed{{{answer}}}")]) == [right]


def test_a_letter_stands_for_its_option_if_the_truth_is_the_option_itself() -> None:
    asked = Question(text="2 + 2?\n(A) 3\n(B) 4", check="math", answer="4", source="test")
    replies = ["\\boxed{B}", "\\boxed{(B) 4}", "\\boxed{4}", "\\boxed{A}", "\\boxed{(B) 3}", "\\boxed{(A) 4}"]
    assert scores([(asked, reply) for reply in replies]) == [1, 1, 1, 0, 0, 0]


def test_a_percentage_may_be_written_with_its_sign_if_the_question_asks_for_one() -> None:
    asked = Question(text="What percent of them is red?", check="math", answer="25", source="test")
    other = Question(text="How many are red?", check="math", answer="25", source="test")
    assert scores([(one, "\\boxed{25\\%}") for one in (asked, other)]) == [1, 0]
    assert scores([(asked, f"\\boxed{{{said}}}") for said in ("24\\%", "0.25")]) == [0, 0]


def test_the_published_comparison_is_of_characters() -> None:
    asked = [
        (question("42"), "\\boxed{42}"),
        (question("42"), "\\boxed{ 42 }"),
        (question("42", "number"), "\\boxed{042}"),
        (question("42"), "\\boxed{42}" + "." * 91),
        (question("C", "choice"), "\\boxed{C}"),
    ]
    assert scores(asked, published=True) == [1, 0, 0, 0, 1]


def test_a_family_is_verified_by_its_package() -> None:
    answer = made_entry(Item(**ITEM))["answer"]
    family = question(answer, "family", family={"package": "reasoning-gym", **ITEM})
    assert scores([(family, f"\\boxed{{{answer}}}"), (family, "\\boxed{x}")]) == [1.0, 0.0]


def test_a_family_that_makes_no_question_is_a_failure() -> None:
    family = {"package": "reasoning-gym", **ITEM, "values": {"min_terms": -5, "max_terms": -6}}
    with pytest.raises(EnvironmentFailure, match="cannot make"):
        scores([(question("1", "family", family=family), "\\boxed{1}")])
    with pytest.raises(EnvironmentFailure, match="no package"):
        scores([(question("1", "family"), "\\boxed{1}")])


def test_a_program_is_run_on_the_tests() -> None:
    problem = Problem(statement="Double it.", tests=(StdioTest("1", "2"), StdioTest("2", "4")))
    asked = question("", "code", problem=problem_payload(problem))
    replies = [
        "```python\nprint(int(input()) * 2)\n```",
        "```python\nprint(9)\n```\nor\n```python\nprint(2)\n```",
        "```text\nprint(2)\n```",
    ]

    async def main() -> list[float]:
        runner = Runner(ExecutionConfig(backend="rlimits"))
        try:
            return await rated([(asked, reply) for reply in replies], runner=runner)
        finally:
            await runner.close()

    assert run(main()) == [1.0, 0.5, 0.0]


def test_a_function_that_only_the_prelude_imports_is_no_answer() -> None:
    problem = Problem(
        statement="The greatest common divisor.",
        tests=(CallTest((4, 6), 2),),
        checker=Checker(kind=CheckerKind.VALUES),
        function="gcd",
        prelude="from math import gcd",
    )
    asked = question("", "code", problem=problem_payload(problem))
    programs = ["pass", "def gcd(a, b):\n    return a if b == 0 else gcd(b, a % b)"]

    async def main() -> list[float]:
        runner = Runner(ExecutionConfig(backend="rlimits"))
        try:
            return await rated([(asked, f"```python\n{one}\n```") for one in programs], runner=runner)
        finally:
            await runner.close()

    assert run(main()) == [0.0, 1.0]


def test_the_last_python_block_is_the_program() -> None:
    assert last_program("```python\na\n```\n```py\nb\n```\n```\nc\n```") == "b"
    assert last_program("```python\nnever closed") is None


def test_alternatives_are_a_list_of_texts() -> None:
    assert alternatives('["10"]') == ("10",)
    assert alternatives("[1, 2]") == ("[1, 2]",)  # an interval
    assert alternatives("[" * 5000) == ("[" * 5000,)


def test_equal_answers_vote_for_one_class() -> None:
    assert len({answer_class(question(""), text) for text in ("1/2", "0.5", "\\frac12", "$\\dfrac{1}{2}$")}) == 1
    assert answer_class(question(""), "\\text{East}") == answer_class(question(""), "East")
    assert answer_class(question("", "number"), "1,000") == "1000"
    assert answer_class(question("", "choice"), "(b)") == "B"
    assert answer_class(question("", "exact"), " a b ") == "a b"
    assert len(answer_class(question(""), "x" * 10**6)) <= 2000
