"""Questions of data sets in each layout, and rows that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rla_programs.coding.data.problems import CallTest, StdioTest, problem_of
from rla_programs.tool.imported import import_questions
from rla_programs.tool.importing.question_layouts import question_layout_of
from rla_programs.tool.questions import Question, question_of

from rla.errors import UserError

pytestmark = pytest.mark.usefixtures("forked_python")  # rows are read in a process
USER = [{"role": "user", "content": "What is 2 + 2?"}]
GPQA = {
    "Question": "Which?",
    "Correct Answer": "right",
    "Incorrect Answer 1": "one",
    "Incorrect Answer 2": "two",
    "Incorrect Answer 3": "three",
}


def rl_row(
    truth: Any, *, source: str = "math_dapo", text: str = "What is 2 + 2?", ability: str = "MATH"
) -> dict[str, Any]:
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": text}],
        "ability": ability,
        "reward_model": {"ground_truth": truth, "style": "rule"},
        "extra_info": {"index": 0},
    }


def imported(
    tmp_path: Path, *rows: Any, name: str = "data.jsonl", told: list[str] | None = None, **options: Any
) -> list[Question]:
    path = tmp_path / name
    path.write_text("\n".join(json.dumps(row) for row in rows))
    tell = None if told is None else told.append
    return [question_of(task) for task in import_questions(path, split="train", tell=tell, **options)]


def test_the_rl_layout(tmp_path: Path) -> None:
    (found,) = imported(tmp_path, rl_row("4"))
    assert found == Question(text="What is 2 + 2?", check="math", answer="4", source="math_dapo", domain="MATH")


def test_a_parquet_file_of_the_rl_layout(tmp_path: Path) -> None:
    rows = [rl_row("4"), rl_row('["5"]', text="And 5?")]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    tasks = import_questions(tmp_path, split="train")
    assert [question_of(task).answer for task in tasks] == ["4", "5"]
    assert {task.kind for task in tasks} == {"math_dapo"} and {task.split for task in tasks} == {"train"}


def test_ground_truths_that_are_lists(tmp_path: Path) -> None:
    rows = [
        rl_row('["10"]', text="a"),
        rl_row('["1", "2"]', text="b"),
        rl_row(["3"], text="c"),
        rl_row("[1, 2]", text="d"),
    ]
    assert [found.answer for found in imported(tmp_path, *rows)] == ["10", '["1", "2"]', "3", "[1, 2]"]


def test_a_letter_among_options_is_a_choice(tmp_path: Path) -> None:
    rows = [rl_row("B", text="Which?\n(A) one\n(B) two"), rl_row("B", text="Name the set.")]
    assert [found.check for found in imported(tmp_path, *rows)] == ["choice", "math"]


def test_a_letter_with_its_text_among_options_is_a_choice(tmp_path: Path) -> None:
    rows = [rl_row("(B) two", text="Which?\n(A) one\n(B) two"), rl_row("two", text="Which word?\n(A) one\n(B) two")]
    assert [(found.check, found.answer) for found in imported(tmp_path, *rows)] == [("choice", "B"), ("math", "two")]


def test_answers_that_are_compared_as_text_alone_are_told_with_an_example(tmp_path: Path) -> None:
    told: list[str] = []
    imported(tmp_path, rl_row("42", text="One?"), rl_row("1, 2, \\ldots, n", text="Two?"), told=told)
    assert told[0].endswith("1 answers can only be compared as text, such as '1, 2, \\\\ldots, n'")


def test_tests_as_inputs_and_outputs(tmp_path: Path) -> None:
    code = {"source": "train-code-taco", "ability": "code"}
    rows = [
        rl_row(json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]}), text="Double.", **code),
        rl_row(json.dumps({"inputs": "['1']", "outputs": "['2']"}), text="Double it.", **code),
        rl_row(json.dumps({"inputs": ["[1, 2]\n3"], "outputs": ["6"], "fn_name": "total"}), text="Add.", **code),
        rl_row(
            json.dumps({"inputs": [], "outputs": [], "assert_case": ["assert f(1) == (2, 3)"]}), text="Pair.", **code
        ),
    ]
    problems = [problem_of(found.problem or "") for found in imported(tmp_path, *rows)]
    assert [problem.tests for problem in problems] == [
        (StdioTest("1\n", "2\n"),),
        (StdioTest("1", "2"),),
        (CallTest(([1, 2], 3), 6),),
        (CallTest((1,), [2, 3]),),
    ]
    assert [problem.function for problem in problems] == [None, None, "total", "f"]


def harness(*lines: str) -> str:
    code = "def check(candidate):\n" + "".join(f"    {line}\n" for line in lines)
    return json.dumps({"import_prefix": "import os", "test_code": code, "entry_point": "Solution().f"})


def test_tests_as_a_harness(tmp_path: Path) -> None:
    text = "class Solution:\n    def f(self, nums: List[int], k: int) -> int:"
    truth = harness("assert candidate(nums = [3, 1], k = 2) == 2", "assert candidate(nums = [], k = 0) == None")
    (found,) = imported(tmp_path, rl_row(truth, text=text, source="train-code-leetcode"))
    problem = problem_of(found.problem or "")
    assert problem.function == "f" and problem.tests == (CallTest(([3, 1], 2), 2), CallTest(([], 0), None))


@pytest.mark.parametrize(
    "line",
    [
        "assert candidate(k = 1, nums = []) == 1",  # not the order of the signature
        "assert same(candidate(nums = [], k = 1)) == 1",
        "assert candidate(**{'nums': []}) == 1",
        "import os",
        "assert candidate(__import__('os')) == 1",
    ],
)
def test_a_harness_that_cannot_be_read_is_no_question(tmp_path: Path, line: str) -> None:
    text = "def f(nums, k):"
    with pytest.raises(UserError, match="1 rows skipped"):
        imported(tmp_path, rl_row(harness(line), text=text, source="train-code-leetcode"))


def test_aime_of_both_spellings(tmp_path: Path) -> None:
    (first,) = imported(tmp_path, {"Problem": "P", "Answer": 25}, name="aime_2024.jsonl")
    (second,) = imported(tmp_path, {"problem": "P", "answer": "025"}, name="aime_2025.jsonl")
    assert (first.answer, first.source, second.answer, second.source) == ("25", "aime2024", "025", "aime2025")
    assert question_layout_of("", ["problem", "answer"], where="x/math.jsonl").name == "plain"


def test_gpqa_shuffles_options_in_the_same_way_each_time(tmp_path: Path) -> None:
    (found,) = imported(tmp_path, GPQA)
    assert [found] == imported(tmp_path, GPQA)
    assert found.check == "choice" and f"({found.answer}) right" in found.text
    rows = [GPQA | {"Question": f"Which {number}?"} for number in range(40)]
    assert {one.answer for one in imported(tmp_path, *rows)} == {"A", "B", "C", "D"}


def test_gpqa_as_the_evaluation_file_has_it(tmp_path: Path) -> None:
    row = {"problem": "Which? (A) 1 (B) 2", "solution": "\\boxed{B}", "domain": "Physics"}
    (found,) = imported(tmp_path, row)
    assert (found.check, found.answer, found.source) == ("choice", "B", "gpqa")
    assert found.domain == "Physics"


LIVECODE = {
    "problem": "Double it.",
    "ability": "code",
    "reward_model": json.dumps({"ground_truth": json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]})}),
    "extra_info": json.dumps({"index": 3}),
}


def test_live_code_bench_as_the_evaluation_file_has_it(tmp_path: Path) -> None:
    (found,) = imported(tmp_path, LIVECODE)
    assert (found.check, found.source) == ("code", "livecodebench") and "Input:\n1\nOutput:\n2" in found.text
    problem = problem_of(found.problem or "")
    assert problem.tests == (StdioTest("1\n", "2\n"),) and problem.time_limit_s == 6.0


@pytest.mark.parametrize(
    ("columns", "source"),
    [
        ({}, "livecodebench"),  # the index is a place in a file, and no id
        ({"question_id": "abc301_a"}, "livecodebench/abc301_a"),
        ({"extra_info": json.dumps({"index": 3, "question_id": "3754"})}, "livecodebench/3754"),
        ({"extra_info": {"question_id": "3754"}, "question_id": " "}, "livecodebench/3754"),
        ({"extra_info": {"question_id": "3754"}, "question_id": "abc301_a"}, "livecodebench/abc301_a"),
        ({"extra_info": {"question_id": "x" * 101}}, "livecodebench"),
        ({"extra_info": {"question_id": ["3754"]}}, "livecodebench"),
        ({"extra_info": "no JSON"}, "livecodebench"),
        ({"extra_info": None}, "livecodebench"),
    ],
)
def test_the_id_of_live_code_bench_is_kept_for_its_runner(tmp_path: Path, columns: dict[str, Any], source: str) -> None:
    (found,) = imported(tmp_path, LIVECODE | columns)
    assert problem_of(found.problem or "").source == source
    assert found.source == "livecodebench"  # figures by source have one row for the benchmark


def test_layouts_of_problems_are_questions_for_a_program(tmp_path: Path) -> None:
    row = {
        "question_content": "Double it.",
        "public_test_cases": json.dumps([{"input": "1", "output": "2", "testtype": "stdin"}]),
        "private_test_cases": json.dumps([{"input": "2", "output": "4", "testtype": "stdin"}] * 40),
    }
    told: list[str] = []
    (found,) = imported(tmp_path, row, told=told)
    assert (found.check, found.source) == ("code", "livecodebench")
    assert len(problem_of(found.problem or "").tests) == 32 and "9 tests left out" in told[0]


def test_plain_columns_and_the_mark_of_gsm8k(tmp_path: Path) -> None:
    rows = [
        {"question": "a", "answer": "3 + 4 = 7\n#### 7"},
        {"question": "b", "answer": 1.5},
        {"question": "c", "answer": 2.0},
    ]
    found = imported(tmp_path, *rows, name="gsm.jsonl")
    assert [one.answer for one in found] == ["7", "1.5", "2"] and found[0].source == "gsm"


def test_rows_that_are_no_question_are_counted_by_reason(tmp_path: Path) -> None:
    rows = [
        rl_row("4"),
        rl_row("4"),
        rl_row("4", text="x" * 20_001),
        rl_row("4" * 2001, text="a"),
        rl_row(None, text="b"),
        rl_row("4", text="c\ud800"),
        rl_row("no tests", text="d", ability="code"),
        {**rl_row("4"), "prompt": [*USER, {"role": "assistant", "content": "4"}]},
        ["not a row"],
    ]
    told: list[str] = []
    assert len(imported(tmp_path, *rows, told=told)) == 1
    assert "1 questions (1 math_dapo), 8 rows skipped" in told[0]
    for reason in (
        "the same question again",
        "more than 20000",
        "ground_truth is no JSON",
        "turns of others",
        "JSON object",
    ):
        assert f"1 {reason}" in told[0] or reason in told[0]


def test_the_limit_and_equal_ids(tmp_path: Path) -> None:
    rows = [rl_row("4", text=f"{number}?") for number in range(5)]
    assert len(imported(tmp_path, *rows, limit=3)) == 3
    first, second = (import_questions(tmp_path / "data.jsonl", split="train") for _ in range(2))
    assert [task.task_id for task in first] == [task.task_id for task in second]


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="layout 'odd' is unknown"):
        imported(tmp_path, rl_row("4"), layout="odd")
    with pytest.raises(UserError, match="not those of the layout gpqa"):
        imported(tmp_path, rl_row("4"), layout="gpqa")
    with pytest.raises(UserError, match="of no known data set"):
        imported(tmp_path, {"a": 1})
    with pytest.raises(UserError, match="no such file"):
        import_questions(tmp_path / "missing", split="train")


def test_tags_of_chat_templates_in_a_question_are_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps({"question": "Is 2 < 3? <tool_response>4</tool_response>", "answer": "4"}))
    (task,) = import_questions(path, split="train")
    assert "<tool_response>" not in task.instruction and "</tool_response>" not in task.instruction
    assert "Is 2 < 3?" in task.instruction
