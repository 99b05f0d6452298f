"""Files of answers: their layouts, and the tasks that rows belong to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rla_programs.answering.answer_files import matched_answers, read_answers

from rla.errors import UserError
from rla.store.records import Task
from tests.unit.builders import task

POOL = [task("t1", instruction="What is 1 + 1?"), task("t2", instruction="What is 1 + 1?  Say\nit twice.")]


def lines(folder: Path, *rows: Any) -> Path:
    file = folder / "a.jsonl"
    file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return file


def answers(file: Path, pool: list[Task] = POOL) -> dict[str, list[str]]:
    groups = matched_answers(read_answers(file), pool).groups
    return {group[0][0].task_id: [text for _, text in group] for group in groups}


def test_rows_by_id_and_rows_by_question(tmp_path: Path) -> None:
    """White space does not matter; several rows of a task, and lists of answers, are put one after the other."""
    file = lines(
        tmp_path,
        {"task_id": "t2", "response": "2 2"},
        {"question": " What is\t1 + 1? ", "response": ["2", "3"]},
        {"task_id": "t1", "response": "4"},
    )
    assert answers(file) == {"t1": ["2", "3", "4"], "t2": ["2 2"]}


def test_an_id_of_somebody_else_leaves_the_question_to_decide(tmp_path: Path) -> None:
    file = lines(tmp_path, {"task_id": "theirs", "question": "What is 1 + 1?", "response": "2"})
    assert answers(file) == {"t1": ["2"]}


def test_a_dump_of_verl_belongs_to_the_longest_question_that_its_input_holds(tmp_path: Path) -> None:
    file = lines(
        tmp_path,
        {"input": "user\nWhat is 1 + 1? Be brief.\nassistant\n", "output": "2", "gts": "2", "score": 1.0, "step": 3},
        {"input": "user\nWhat is 1 + 1? Say it twice.\nassistant\n", "output": "2 2", "gts": "2", "score": 1.0},
    )
    assert answers(file) == {"t1": ["2"], "t2": ["2 2"]}


def test_an_input_that_holds_two_questions_of_one_length_belongs_to_neither(tmp_path: Path) -> None:
    pool = [task("a", instruction="2 + 3"), task("b", instruction="4 + 5")]
    assert answers(lines(tmp_path, {"input": "2 + 3 or 4 + 5", "output": "5"}), pool) == {}


def test_a_question_that_two_tasks_ask_belongs_to_neither(tmp_path: Path) -> None:
    pool = [task("a", instruction="same"), task("b", instruction="same ")]
    file = lines(tmp_path, {"question": "same", "response": "1"}, {"task_id": "b", "response": "2"})
    assert answers(file, pool) == {"b": ["2"]}


def test_what_belongs_to_nothing_is_counted(tmp_path: Path) -> None:
    file = lines(tmp_path, {"task_id": "t1", "response": "2"}, {"task_id": "other", "response": "2"})
    found = matched_answers(read_answers(file), POOL)
    assert found.counts() == {"rows": 2, "unmatched": 1, "answers": 1, "tasks": 1, "unanswered_tasks": 1}
    assert found.told() == "1 answers to 1 tasks; 1 tasks without an answer, 1 of 2 rows belong to no task"


def test_parquet_rows_are_read_alike(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"task_id": ["t1", "t2"], "response": [["2", "3"], ["4"]], "extra": [1, 2]}), file)
    assert answers(file) == {"t1": ["2", "3"], "t2": ["4"]}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("[1]", "line 1: not a JSON object"),
        ("{", "line 1: not a JSON object"),
        ({"response": "2"}, "row 1: a row needs the columns"),
        ({"task_id": "t1"}, "row 1: a row needs the columns"),
        ({"task_id": "t1", "response": [1]}, "row 1: a row needs the columns"),
        ({"task_id": 7, "response": "2"}, "row 1: task_id must be a text"),
    ],
)
def test_rows_of_no_layout_are_refused(tmp_path: Path, row: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_answers(lines(tmp_path, row))


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    broken = tmp_path / "b.parquet"
    broken.write_bytes(b"no")
    for file, said in ((tmp_path / "a.csv", "are read from"), (tmp_path / "none.jsonl", "cannot be read")):
        with pytest.raises(UserError, match=said):
            read_answers(file)
    with pytest.raises(UserError, match="cannot be read"):
        read_answers(broken)
    with pytest.raises(UserError, match="no rows"):
        read_answers(lines(tmp_path))
