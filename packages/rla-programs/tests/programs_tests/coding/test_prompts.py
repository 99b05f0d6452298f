"""How programs and tests are asked for, and what is read from replies, hostile ones included."""

from __future__ import annotations

import time
from typing import Any

import pytest
from rla_programs.coding.builtin import drawn_problems
from rla_programs.coding.data.problems import CallTest, StdioTest, Test, question
from rla_programs.coding.prompts import LONGEST_PROGRAM, PlainProgramPrompt, PublishedProgramPrompt
from rla_programs.coding.writing import (
    LONGEST_TEXT,
    PlainTestPrompt,
    PublishedTestPrompt,
    Written,
    read_test,
    texts_of,
)

from programs_tests.coding.builders import function, stdio
from rla.envs.protocols import PolicyPrompt

PLAIN: PolicyPrompt = PlainProgramPrompt()
PUBLISHED: PolicyPrompt = PublishedProgramPrompt()
PROBLEM = stdio(("1\n", "2\n"))
CALLED = function(((1,), 2))
FENCED = "a\nTest output: 5"


def published(given: str, wanted: str) -> str:
    return f"Let me think.\n\n**Test Input:**\n{given}\n\n**Test Output:**\n{wanted}\n\n**Explanation:**\nBecause."


def test_a_small_model_is_shown_the_question_alone() -> None:
    assert PLAIN.opening(question(PROBLEM), ()) == [{"role": "user", "content": "Read an integer n. Print n plus 1."}]
    assert PLAIN.parse("n = int(input())\nprint(n + 1)\n\n", ()) == "n = int(input())\nprint(n + 1)"
    assert PLAIN.parse(" \n", ()) is None


def test_a_chat_model_is_instructed_and_may_reason() -> None:
    content = PUBLISHED.opening(question(PROBLEM), ())[0]["content"]
    assert content.startswith("Solve the programming problem") and content.endswith("Print n plus 1.")
    reply = "First try:\n```python\nprint(1)\n```\nBetter:\n```python\nprint(2)\n```\nDone."
    assert PUBLISHED.parse(reply, ()) == "print(2)"


@pytest.mark.parametrize(
    ("reply", "program"),
    [
        ("print(1)", None),
        ("```\nprint(1)\n```", None),
        ("```json\n{}\n```", None),
        ("```python\nprint(1)", None),  # cut off
        ("```python\n\n```", None),
        ("  ```Python\r\nprint(1)\r\n  ```", "print(1)"),
        ("```python\nprint(1)\n```\n```text\nout\n```", "print(1)"),
        ('```python\ns = """\n```python\n"""\n```', 's = """\n```python\n"""'),  # a tag inside opens nothing
        ("````python\n```\nprint(1)\n````", "```\nprint(1)"),
    ],
)
def test_which_block_is_the_program(reply: str, program: str | None) -> None:
    assert PUBLISHED.parse(reply, ()) == program


@pytest.mark.parametrize("prompt", [PLAIN, PUBLISHED])
def test_what_is_rendered_is_read_back(prompt: PolicyPrompt) -> None:
    for drawn in drawn_problems(seed=0, count=30):
        assert prompt.parse(prompt.render(str(drawn.problem.solution), ()), ()) == drawn.problem.solution


@pytest.mark.parametrize("prompt", [PLAIN, PUBLISHED])
def test_programs_that_no_file_can_hold_are_refused(prompt: PolicyPrompt) -> None:
    for text in ("print('\ud800')", "print(1)\x00", "#" * (LONGEST_PROGRAM + 1)):
        assert prompt.parse(prompt.render(text, ()), ()) is None


@pytest.mark.parametrize("prompt", [PlainTestPrompt(), PublishedTestPrompt()])
@pytest.mark.parametrize(
    ("problem", "test"),
    [
        (PROBLEM, StdioTest("1\n2 3\n", "4\n")),
        (PROBLEM, StdioTest("", "4\n")),
        (PROBLEM, StdioTest("1\n", "")),
        (CALLED, CallTest((1, [2, "x"], None), {"a": True})),
        (CALLED, CallTest((), 0.5)),
        (CALLED, CallTest(("two\nlines",), "\n")),
    ],
)
def test_a_rendered_test_is_read_back(prompt: Any, problem: Any, test: Test) -> None:
    assert read_test(problem, prompt.parse(prompt.render(test))) == test


def test_the_test_writer_sees_the_problem_as_data() -> None:
    assert PlainTestPrompt().messages(PROBLEM) == [
        {"role": "user", "content": "Read an integer n. Print n plus 1.\ntest:"}
    ]
    content = PublishedTestPrompt().messages(CALLED)[0]["content"]
    assert "the function `f`" in content
    assert content.endswith("--------\nWrite a function f(n) that returns n plus 1.\n--------")
    assert "function `" not in PublishedTestPrompt().messages(PROBLEM)[0]["content"]


@pytest.mark.parametrize(
    ("reply", "texts"),
    [
        ("3\n->\n4", Written("3", "4")),
        ("->\n4", Written("", "4")),
        ("3\n->", Written("3", "")),
        ("1\n2\n -> \n3\n4", Written("1\n2", "3\n4")),
        ("3 -> 4", None),
        ("3\n->\n4\n->\n5", None),
        ("", None),
    ],
)
def test_a_small_model_writes_an_arrow_line(reply: str, texts: Written | None) -> None:
    assert PlainTestPrompt().parse(reply) == texts


@pytest.mark.parametrize(
    ("reply", "texts"),
    [
        (published("```\n3\n```", "```\n4\n```"), Written("3", "4")),
        (published("```text\n1\n2\n```", "```output\n3\n```"), Written("1\n2", "3")),  # a tag is no input
        (published("```\n```", "```\n4\n```"), Written("", "4")),
        (published("3", "4"), Written("3", "4")),
        ("Test Input: 3\nTest Output: 4\nExplanation: so", Written("3", "4")),
        ("### Test Input:\n3\n### Test Output:\n4", Written("3", "4")),
        (published("```\n9\n```", "```\n9\n```") + "\nNo:\n" + published("```\n3\n```", "4"), Written("3", "4")),
        (published("```\n3", "4"), None),  # never closed
        ("**Test Input:**\n```\n3\n```", None),
        ("I cannot.", None),
        (published("```\n3\n```", "```\n4\n```") + "\nTest output is 4: 3 + 1.", Written("3", "4")),  # no title
        (published("```\n3\n```", "```\n4\n```") + "\nTest input [3], so: 4.", Written("3", "4")),
        (published(f"```\n{FENCED}\n```", "```\nTest input: 4\n```"), Written(FENCED, "Test input: 4")),
    ],
)
def test_a_chat_model_writes_sections(reply: str, texts: Written | None) -> None:
    assert PublishedTestPrompt().parse(reply) == texts


@pytest.mark.parametrize(
    ("texts", "test"),
    [
        (Written("3", "4"), CallTest((3,), 4)),
        (Written("[1, 2]\n'x'", "(1, True)"), CallTest(([1, 2], "x"), [1, True])),  # Python literals
        (Written("null", "true"), CallTest((None,), True)),
        (Written("3", ""), None),
        (Written("f(3)", "4"), None),
        (Written("__import__('os').getcwd()", "4"), None),
        (Written("{1, 2}", "4"), None),  # no JSON value
        (Written("{1: 2}", "4"), None),  # the function would get another key
        (Written("3", "{1: 2}"), CallTest((3,), {"1": 2})),  # as the value that it returns becomes
        (Written("[" * 70 + "]" * 70, "4"), None),
        (Written("3", "[" * 70 + "]" * 70), None),
        (Written("NaN", "4"), None),
        (Written("9" * 50_000, "4"), None),
        (Written("[" * 9000, "4"), None),
        (Written("-" * 9000 + "1", "4"), None),
    ],
)
def test_arguments_are_literals_and_never_evaluated(texts: Written, test: CallTest | None) -> None:
    assert read_test(CALLED, texts) == test


def test_no_test_is_no_test() -> None:
    assert read_test(PROBLEM, None) is None
    assert texts_of(StdioTest("1\n\n", "")) == Written("1\n", "")


@pytest.mark.parametrize(
    "reply",
    [
        "```" * 66_000,
        "```python\n" * 20_000,
        "Test Input:\n" * 16_000,
        "Test Input:\n```\n" * 12_001,
        "*" * 199_000,
        "->\n" * 66_000,
        "\ud800\n->\n1",
        "x" * (LONGEST_TEXT + 1) + "\n->\n1",
        "9" * 2_000_000,
    ],
    ids=range(9),
)
def test_hostile_replies_are_refused_in_linear_time(reply: str) -> None:
    started = time.process_time()
    assert PUBLISHED.parse(reply, ()) is None
    assert PlainTestPrompt().parse(reply) is None
    assert PublishedTestPrompt().parse(reply) is None
    assert time.process_time() - started < 3.0
