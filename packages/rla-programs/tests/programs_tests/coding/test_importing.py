"""Small files of each public layout, what becomes of bad rows, and that nothing of a data set runs."""

from __future__ import annotations

import base64
import json
import pickle
import sys
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rla_programs.coding.data.checkers import CheckerKind
from rla_programs.coding.data.problems import (
    CallTest,
    InvalidProblem,
    Problem,
    StdioTest,
    problem_digest,
    problem_of,
    problem_payload,
    task_from_problem,
)
from rla_programs.coding.importing import hub, import_problems
from rla_programs.coding.importing.layouts import LAYOUTS, data_layout_of
from rla_programs.coding.importing.pickled import hidden_tests, pickled_text, unpacked
from rla_programs.execution.preload import with_prelude

from rla.errors import UserError

pytestmark = pytest.mark.usefixtures("forked_python")  # rows are read in a process
CODECONTESTS = {
    "name": "1_A. Sum",
    "description": "Print the sum.",
    "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
    "private_tests": {"input": ["5 5\n"], "output": ["10\n"]},
    "generated_tests": {"input": ["0 0\n"], "output": ["0\n"]},
    "solutions": {"language": [2, 3], "solution": ["int main() {}", "print(sum(map(int, input().split())))"]},
    "time_limit": {"seconds": 1, "nanos": 500000000},
    "memory_limit_bytes": 256000000,
    "cf_rating": 1300,
    "input_file": "",
    "output_file": "",
}
STDIN_CASE = [{"input": "3\n", "output": "0.5", "testtype": "stdin"}]
CALL_CASE = [{"input": '[1, 2]\n"x"', "output": "[[1, 2], null]", "testtype": "functional"}]
LIVECODEBENCH = {
    "question_title": "Sum",
    "question_content": "Print a half.",
    "platform": "atcoder",
    "starter_code": "",
    "difficulty": "medium",
    "public_test_cases": json.dumps(STDIN_CASE),
    "private_test_cases": json.dumps([{"input": "4\n", "output": "2", "testtype": "stdin"}]),
    "metadata": "{}",
}
LEETCODE = LIVECODEBENCH | {
    "question_content": "Return the pair.",
    "starter_code": "class Solution:\n    def pair(self, a: List[int], s: str):\n        ",
    "public_test_cases": json.dumps(CALL_CASE),
    "metadata": json.dumps({"func_name": "pair"}),
}
MBPP = {
    "task_id": 2,
    "text": "Write a function to add.",
    "code": "def add(a, b):\n    return a + b",
    "test_list": ["assert add(1, 2) == 3", "assert add((1,), (2,)) == (1, 2)", "assert [3] == add([], [3])"],
    "test_setup_code": "",
    "challenge_test_list": ["assert not add(0, False)"],
}
APPS = {
    "problem_id": 0,
    "question": "Print the sum.",
    "solutions": json.dumps(["print(3)"]),
    "input_output": json.dumps({"inputs": ["1\n2\n", ["3", "4"]], "outputs": ["3\n", ["7"]]}),
    "difficulty": "interview",
    "starter_code": "",
}
DEEP = json.loads("[" * 70 + "]" * 70)
TACO = APPS | {
    "question": "Add them.",
    "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [[1], [2]]], "outputs": [[3], [[1, 2]]]}),
    "difficulty": "VERY_HARD",
    "raw_tags": "[]",
    "time_limit": "2.0 seconds",
    "memory_limit": "512.0 megabytes",
}
PUBLISHED = {
    "question": "Print the sum.",
    "test_input": ["1 2\n", ""],
    "test_output": ["3\n", ""],
    "test_method": "stdio",
    "test_time_limit": 6,
}


def packed(value: Any, *, protocol: int = 4) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(value), protocol=protocol))).decode()


def livebench(row: dict[str, Any], **fields: Any) -> dict[str, Any]:
    about = {name: row[name] for name in ("question_content", "starter_code", "difficulty", "metadata")}
    tests = {name: row[name] for name in ("public_test_cases", "private_test_cases")}
    return {"question_id": "1", "turns": ["..."], "original_json": about, **tests, "partial_solution": "", **fields}


def lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def only(row: dict[str, Any]) -> Problem:
    """The problem of one row, as it is after a trip through a task's payload."""
    problem = data_layout_of(row, where="row").read(row)
    assert problem_of(problem_payload(problem)) == problem
    return problem


def test_codecontests() -> None:
    problem = only(CODECONTESTS)
    assert problem.tests == (StdioTest("1 2\n", "3\n"), StdioTest("5 5\n", "10\n"), StdioTest("0 0\n", "0\n"))
    assert (problem.kind, problem.checker.kind) == ("stdio", CheckerKind.TOKENS)
    assert (problem.time_limit_s, problem.memory_limit_mb, problem.difficulty) == (1.5, 244, 2)
    assert problem.solution == "print(sum(map(int, input().split())))"
    listed = CODECONTESTS | {"public_tests": [{"input": "1 2\n", "output": "3\n"}]}
    assert only(listed) == problem


def test_livecodebench_stdio_and_functional() -> None:
    problem = only(LIVECODEBENCH)
    assert problem.tests == (StdioTest("3\n", "0.5"), StdioTest("4\n", "2"))
    assert (problem.checker.kind, problem.difficulty, problem.time_limit_s) == (CheckerKind.FLOATS, 3, 6.0)
    called = only(LEETCODE | {"private_test_cases": packed(CALL_CASE * 2)})
    assert called.function == "pair" and "class Solution" in called.starter
    assert called.tests == (CallTest(([1, 2], "x"), [[1, 2], None]),) * 3


@pytest.mark.parametrize("kind", ["livecodebench", "livebench", "apps", "taco"])
def test_the_imports_of_the_official_runner_come_before_every_program(kind: str) -> None:
    called = LEETCODE | {"private_test_cases": "[]"}
    rows = {"livecodebench": called, "livebench": livebench(called), "apps": APPS, "taco": TACO}
    problem = LAYOUTS[kind].read(rows[kind])
    space: dict[str, Any] = {}
    limit = sys.getrecursionlimit()
    try:
        exec(with_prelude(problem.prelude, "found = List, math.sqrt(4), heapq, Counter, pow(2, 3, 5)"), space)
    finally:
        sys.setrecursionlimit(limit)  # the official runner raises it
    assert space["found"][1] == 2.0 and space["found"][-1] == 3
    assert problem_of(problem_payload(problem)) == problem


def test_an_expected_integer_may_have_more_than_4300_digits(tmp_path: Path) -> None:
    long = "9" * 5000
    case = [{"input": long, "output": long, "testtype": "functional"}]
    row = LEETCODE | {"public_test_cases": json.dumps(case), "private_test_cases": "[]"}
    problem = LAYOUTS["livecodebench"].read(row)
    assert problem.tests == (CallTest((int(long),), int(long)),)
    assert problem_of(problem_payload(problem)) == problem


def test_an_integer_that_is_too_long_is_the_reason() -> None:
    case = [{"input": "1", "output": "9" * 30_000, "testtype": "functional"}]
    with pytest.raises(InvalidProblem, match="an integer of more than 20000 digits"):
        LAYOUTS["livecodebench"].read(LEETCODE | {"public_test_cases": json.dumps(case), "private_test_cases": "[]"})


def test_the_source_of_a_livecodebench_problem_keeps_its_id() -> None:
    """It goes back to the official runner, and decides nothing about the task's own id."""
    named, nameless = only(LIVECODEBENCH | {"question_id": "abc301_a"}), only(LIVECODEBENCH | {"question_id": " "})
    assert (named.source, nameless.source) == ("livecodebench/abc301_a", "livecodebench")
    assert problem_digest(named) == problem_digest(nameless)


def test_livebench() -> None:
    row = livebench(LIVECODEBENCH, private_test_cases=packed(STDIN_CASE))
    assert only(row).tests == (StdioTest("3\n", "0.5"),) * 2
    begun = only(row | {"partial_solution": "n = int(input())"})
    assert (
        begun.statement == "Print a half.\n\nThe program begins with these lines; write all of it:\n\nn = int(input())"
    )


def test_mbpp() -> None:
    problem = only(MBPP)
    assert problem.function == "add" and problem.solution == MBPP["code"]
    asked = "Write a function to add.\nThe function is called add. Example: assert add(1, 2) == 3"
    assert problem.statement == f"{asked}\nTuples are passed as lists; a list may be returned for a tuple."
    assert only(MBPP | {"test_list": ["assert add(1, 2) == 3", "assert add(3) == (3,)"]}).statement == asked
    assert [(test.arguments, test.expected) for test in problem.tests if isinstance(test, CallTest)] == [
        ((1, 2), 3),
        (([1], [2]), [1, 2]),
        (([], [3]), [3]),
        ((0, False), False),
    ]
    close = only(MBPP | {"test_list": ["assert math.isclose(add(1, 2), 3.1, rel_tol=0.1)"]})
    assert (close.checker.kind, close.checker.relative) == (CheckerKind.VALUES, 0.1)
    sanitized = {("prompt" if name == "text" else name): value for name, value in MBPP.items()}
    assert only(sanitized) == problem


def test_apps_and_taco() -> None:
    problem = only(APPS)
    assert problem.tests == (StdioTest("1\n2\n", "3\n"), StdioTest("3\n4", "7"))
    assert (problem.solution, problem.difficulty, problem.source) == ("print(3)", 3, "apps")
    called = only(TACO)
    assert called.tests == (CallTest((1, 2), 3), CallTest(([1], [2]), [1, 2]))  # values unwrapped
    assert (called.function, called.time_limit_s, called.memory_limit_mb) == ("add", 2.0, 512)
    assert (called.difficulty, called.source) == (5, "taco")
    assert called.statement == "Add them.\n\nThe function is called add."


@pytest.mark.parametrize("limit", [10**17, 256_000_000, "268435456 bytes"])
def test_a_limit_in_another_unit_is_no_limit_that_a_machine_has(limit: Any) -> None:
    assert only(APPS | {"memory_limit": limit, "time_limit": 1e300}).memory_limit_mb == 4096


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps([PUBLISHED]), encoding="utf-8-sig")
    assert len(import_problems(tmp_path, split="train").problems) == 1


def test_the_published_files_with_empty_input_and_output() -> None:
    assert only(PUBLISHED).tests == (StdioTest("1 2\n", "3\n"), StdioTest("", ""))
    assert only(PUBLISHED).time_limit_s == 6.0


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (CODECONTESTS | {"description": "See <image>."}, "image"),
        (CODECONTESTS | {"input_file": "in.txt"}, "file"),
        (CODECONTESTS | {"private_tests": {"input": ["1"], "output": []}}, "as many"),
        (LIVECODEBENCH | {"private_test_cases": "gAR9lC4="}, "decoded"),
        (LIVECODEBENCH | {"private_test_cases": json.dumps(CALL_CASE)}, "both kinds"),
        (LEETCODE | {"private_test_cases": "[]", "metadata": "{}"}, "func_name"),
        (livebench(LIVECODEBENCH) | {"private_test_cases": None}, "test module"),
        (MBPP | {"test_setup_code": "import os"}, "set-up"),
        (MBPP | {"test_list": ["assert add(1) == sub(2)"]}, "assertion"),
        (MBPP | {"test_list": ["assert set(add(1, 2)) == {3}"]}, "assertion"),
        (MBPP | {"test_list": ["assert add(1, b=2) == 3"]}, "assertion"),
        (MBPP | {"test_list": ["assert add(*[1]) == 3"]}, "assertion"),
        (MBPP | {"test_list": ["assert add(1) == {1, 2}"]}, "assertion"),
        (MBPP | {"test_list": ["assert add([{1: 2}]) == 3"]}, "assertion"),  # f would get "1"
        (MBPP | {"test_list": [f"assert add({'[' * 70}{']' * 70}) == 3"]}, "assertion"),
        (TACO | {"input_output": json.dumps({"fn_name": "f", "inputs": [[DEEP]], "outputs": [1]})}, "nested"),
        (MBPP | {"test_list": ["import os; os._exit(1)"]}, "assertion"),
        (MBPP | {"test_list": ["assert " + "(" * 5000 + "1"]}, "assertion"),
        (MBPP | {"test_list": ["assert sub(1, 2) == 3"]}, "several functions"),
        (MBPP | {"test_list": ["assert math.isclose(add(1), 2, rel_tol=-1)"]}, "tolerance"),
        (MBPP | {"test_list": [f"assert math.isclose(add(1), 2, rel_tol={10**400})"]}, "assertion"),
        (APPS | {"input_output": "{"}, "no JSON"),
        (APPS | {"input_output": '{"inputs": [], "outputs": []}'}, "no tests"),
        (TACO | {"input_output": '{"fn_name": "a.b", "inputs": [[1]], "outputs": [1]}'}, "identifier"),
        (PUBLISHED | {"test_method": "function"}, "not stdio"),
        (PUBLISHED | {"question": None}, "no text"),
    ],
)
def test_rows_that_are_no_problem_say_why(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidProblem, match=reason):
        only(row)


ODD: list[Any] = [None, True, 7, 10**400, float("nan"), "", "x", "\ud800", "7", "[]", "{}", "[[1]]", '{"func_name": 7}']
ODD += [
    '{"inputs": 7}',
    '{"inputs": [7], "outputs": [7]}',
    '{"inputs": [7], "outputs": [7], "fn_name": "f"}',
    '{"fn_name": 7}',
]
ODD += [[], [7], [[7]], ["x"], [None], {}, {"input": 7, "output": 7}, {"input": ["7"], "output": [7]}, {"seconds": "7"}]
ODD += [{"language": 7, "solution": 7}, {"language": [3], "solution": [7]}, {"question_content": "x", "metadata": []}]
ROWS = [CODECONTESTS, LIVECODEBENCH, LEETCODE, livebench(LEETCODE), MBPP, APPS, TACO, PUBLISHED]


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_whatever_a_column_holds_the_row_is_a_problem_or_says_why(row: dict[str, Any]) -> None:
    read = data_layout_of(row, where="row").read
    outcomes = set()
    for name in row:
        for value in ODD:
            try:
                problem = read(row | {name: value})
                assert problem_of(problem_payload(problem)) == problem
                outcomes.add("read")
            except InvalidProblem:
                outcomes.add("refused")
    assert outcomes == {"read", "refused"}


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("ran"),))


def test_a_pickle_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for protocol in range(2, 6):
        assert pickled_text(pickle.dumps("tests" * 100, protocol=protocol)) == "tests" * 100
    for value in (Bomb(), ["a"], {"a": 1}, 1, b"a", ("a", "b"), None):
        with pytest.raises(ValueError, match="one text"):
            pickled_text(pickle.dumps(value))
    with pytest.raises(InvalidProblem, match="decoded"):
        hidden_tests(base64.b64encode(zlib.compress(pickle.dumps(Bomb()))).decode())
    assert not list(tmp_path.iterdir())


def test_what_unpacks_to_too_much_is_refused() -> None:
    data = zlib.compress(b"0" * 10_000)
    assert unpacked(data, largest=10_000) == b"0" * 10_000
    with pytest.raises(ValueError, match="too large"):
        unpacked(data, largest=9_999)
    for encoded in ("", "!", "AAAA", packed("x")[:-8], base64.b64encode(data).decode()):
        with pytest.raises(InvalidProblem, match="decoded"):
            hidden_tests(encoded)


def test_a_file_of_rows_good_and_bad(tmp_path: Path) -> None:
    path = lines(tmp_path / "any.jsonl", PUBLISHED, "not json", [1], PUBLISHED, PUBLISHED | {"question": 1}, "")
    found = import_problems(path, split="train")
    assert [problem.statement for problem in found.problems] == ["Print the sum."]
    assert found.skipped == {"not a JSON object": 2, "the same problem again": 1, "question is no text": 1}
    assert found.summary() == (
        "1 problems, 4 rows skipped (2 not a JSON object, 1 the same problem again, 1 question is no text)"
    )
    assert task_from_problem(found.problems[0], split="train").env == "coding"


def test_a_folder_has_splits_in_any_format(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(pa.Table.from_pylist([CODECONTESTS]), tmp_path / "data" / "train-00000-of-00001.parquet")
    (tmp_path / "mbpp_train.json").write_text(json.dumps([MBPP], indent=1))
    lines(tmp_path / "test" / "part.json", APPS, TACO)
    lines(tmp_path / "train.txt", PUBLISHED)
    assert [p.source for p in import_problems(tmp_path, split="train").problems] == ["codecontests", "mbpp"]
    assert [p.source for p in import_problems(tmp_path, split="test").problems] == ["apps", "taco"]
    assert len(import_problems(tmp_path, split="test", limit=1).problems) == 1
    with pytest.raises(UserError, match="no data file of the split 'valid' among 3"):
        import_problems(tmp_path, split="valid")


def test_parquet_of_every_layout(tmp_path: Path) -> None:
    rows = [CODECONTESTS, LEETCODE | {"private_test_cases": packed([])}, livebench(LIVECODEBENCH), MBPP, APPS, TACO]
    for number, row in enumerate(rows):
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / f"train-{number}.parquet")
    found = import_problems(tmp_path, split="train").problems
    assert found == [only(row) for row in rows]


def test_large_tests_are_left_out_and_counted(tmp_path: Path) -> None:
    many = PUBLISHED | {"test_input": ["1", "x" * 100, "2", "3"], "test_output": ["1", "2", "3", "4"]}
    path = lines(tmp_path / "a.jsonl", many, many | {"question": "Huge.", "test_input": ["x" * 100] * 4})
    found = import_problems(path, split="train", max_tests=2, max_test_chars=50)
    assert found.problems[0].tests == (StdioTest("1", "1"), StdioTest("2", "3"))
    assert found.tests_left_out == 2
    assert found.skipped == {"no test is small enough": 1}


def test_what_cannot_be_read_names_the_file(tmp_path: Path) -> None:
    broken = tmp_path / "train.parquet"
    broken.write_bytes(b"PAR1 not")
    with pytest.raises(UserError, match=r"train\.parquet: cannot be read"):
        import_problems(broken, split="train")
    with pytest.raises(UserError, match=r"a\.json: not JSON"):
        import_problems(lines(tmp_path / "a.json", "[{]"), split="train")
    with pytest.raises(UserError, match=r"b\.jsonl: its columns \['answer', 'math'\] match no known data set"):
        import_problems(lines(tmp_path / "b.jsonl", {"math": 1, "answer": 2}), split="train")
    with pytest.raises(
        UserError, match=r"c\.jsonl: no problem in it: 0 problems, 1 rows skipped \(1 no column prompt\)"
    ):
        import_problems(lines(tmp_path / "c.jsonl", {"test_list": MBPP["test_list"]}), split="train", layout="mbpp")
    with pytest.raises(UserError, match="no such file or folder; for a data set of the Hub"):
        import_problems(tmp_path / "nowhere", split="train")
    with pytest.raises(UserError, match=r"d\.csv: not one of"):
        import_problems(lines(tmp_path / "d.csv", "a"), split="train")
    with pytest.raises(UserError, match="layout 'humaneval' is unknown; choose from codecontests"):
        import_problems(tmp_path / "c.jsonl", split="train", layout="humaneval")


def test_layouts_are_told_apart() -> None:
    rows = [CODECONTESTS, LIVECODEBENCH, livebench(LIVECODEBENCH), MBPP, APPS, TACO, PUBLISHED]
    assert [only(row).source for row in rows] == [
        "codecontests",
        "livecodebench",
        "livebench",
        "mbpp",
        "apps",
        "taco",
        "published",
    ]
    assert set(LAYOUTS) >= {only(row).source for row in rows}


def test_a_data_set_of_the_hub_is_fetched_by_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"README.md": "", "full/train-0.jsonl": json.dumps(MBPP), "full/test-0.jsonl": json.dumps(APPS)}
    asked: list[tuple[str, str | None]] = []

    def download(repo: str, name: str, *, repo_type: str, revision: str | None) -> str:
        asked.append((f"{repo}/{name}", revision))
        return str(lines(tmp_path / name, files[name]))

    monkeypatch.setattr("huggingface_hub.list_repo_files", lambda *_, **__: sorted(files))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    assert import_problems("hub:owner/mbpp@v1:full", split="train").problems == [only(MBPP)]
    assert import_problems("hub:owner/mbpp:full/test-0.jsonl", split="train").problems == [only(APPS)]
    assert asked == [("owner/mbpp/full/train-0.jsonl", "v1"), ("owner/mbpp/full/test-0.jsonl", None)]
    with pytest.raises(UserError, match="no data file of the split 'valid'"):
        import_problems("hub:owner/mbpp", split="valid")
    with pytest.raises(UserError, match="not of the form hub:owner/name"):
        import_problems("hub:mbpp", split="train")


def test_without_a_network_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"hub:owner/name: cannot be fetched \(.*offline.*give the folder of a copy"):
        hub.fetched("hub:owner/name", "train")
