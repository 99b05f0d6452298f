"""Pools of problems from files: rows that are none are counted, and what trains is not held out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.conftest import Rla

pytestmark = pytest.mark.usefixtures("forked_python")  # rows are read in a process
CODING = ("--env", "coding", "--run", "r")


def test_rows_of_a_data_set_that_are_no_problem_are_counted(rla: Rla, tmp_path: Path) -> None:
    row = {"question": "Print 1.", "test_input": [""], "test_output": ["1\n"]}
    (tmp_path / "data.json").write_text(json.dumps([row, {"question": "Print 2."}]))
    code, said, error = rla("make-tasks", *CODING, "--from", "data.json", "--split", "train")
    assert code == 0 and "data.json: 1 problems, 1 rows skipped (1 " in said + error


def problems(path: Path, *numbers: int, spaced: bool = False) -> str:
    rows = [
        {"question": f"{'  ' if spaced else ''}Print  {number}.", "test_input": ["1"], "test_output": [f"{number}"]}
        for number in numbers
    ]
    path.write_text(json.dumps(rows))
    return str(path)


def test_one_file_for_training_and_evaluation_is_refused(rla: Rla, tmp_path: Path) -> None:
    data = problems(tmp_path / "data.json", 1, 2, 3)
    code, _, error = rla("make-tasks", *CODING, "--from", data)
    assert code == 2 and "train and test share 3 of 3 tasks" in error and "env.own.test_path" in error


@pytest.mark.parametrize("spaced", [False, True])
def test_some_shared_problems_are_counted_whatever_their_white_space(rla: Rla, tmp_path: Path, spaced: bool) -> None:
    data, held_out = problems(tmp_path / "a.json", 1, 2, 3), problems(tmp_path / "b.json", 5, 3, 2, 6, spaced=spaced)
    code, _, error = rla("make-tasks", *CODING, "--from", data, "--set", f"env.own.test_path={held_out}")
    assert code == 2 and "train and test share 2 of 4 tasks" in error
    assert (
        rla("make-tasks", *CODING, "--from", data, "--set", f"env.own.test_path={problems(tmp_path / 'c.json', 4)}")[0]
        == 0
    )


@pytest.mark.parametrize("order", [("train", "test"), ("test", "train")])
def test_splits_that_are_made_one_after_the_other_are_compared(
    rla: Rla, tmp_path: Path, order: tuple[str, str]
) -> None:
    call = ("make-tasks", *CODING, "--from", problems(tmp_path / "data.json", 1, 2))
    assert rla(*call, "--split", order[0])[0] == 0
    code, _, error = rla(*call, "--split", order[1])
    assert code == 2 and "train and test share 2 of 2 tasks" in error


def test_an_adapted_task_is_not_held_out_afterwards(rla: Rla, tmp_path: Path) -> None:
    """The pool of the second iteration has a task that the held-out file has, too."""
    assert rla("make-tasks", *CODING, "--from", problems(tmp_path / "a.json", 1), "--split", "train")[0] == 0
    again = ("make-tasks", *CODING, "--from", problems(tmp_path / "b.json", 2), "--split", "train")
    assert rla(*again, "--train", "r/2/pool")[0] == 0
    test = problems(tmp_path / "c.json", 2, 3)
    code, _, error = rla("make-tasks", *CODING, "--from", test, "--split", "test")
    assert code == 2 and "train and test share 1 of 2 tasks" in error
