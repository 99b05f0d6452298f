"""Data sets that were made to exhaust whoever reads them: such a row is refused, and the others are imported."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rla_programs.coding.data.problems import InvalidProblem
from rla_programs.coding.importing import apart, import_problems
from rla_programs.coding.importing.apart import MOST_DEATHS, TOO_LARGE, Order, problem_reader, read_apart
from rla_programs.coding.importing.bounds import MOST_VALUES, bounded_json
from rla_programs.coding.importing.pickled import pickled_text

from rla.errors import UserError

ROW = {"test_input": ["1 2\n"], "test_output": ["3\n"]}
FIRST, LAST = ROW | {"question": "First."}, ROW | {"question": "Last."}
DEADLY = """
import os, signal
from rla_programs.coding.importing import apart
whole = apart.with_small_tests
def killing(problem, order):
    if problem.statement == "Die.":
        os.kill(os.getpid(), signal.SIGKILL)
    return whole(problem, order)
apart.with_small_tests = killing
apart.serve_rows()
"""


def packed(text: str) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(text))).decode()


def hidden(tests: str) -> dict[str, Any]:
    """A row of another layout, whose hidden tests unpack to this text."""
    names = ("question_content", "starter_code", "difficulty", "metadata")
    return dict.fromkeys(names, "") | {"public_test_cases": "[]", "private_test_cases": packed(tests)}


def order_of(folder: Path, *rows: Any, layout: str | None = None) -> Order:
    path = folder / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Order(files=(str(path),), opener=problem_reader, layout=layout, max_tests=8, max_test_chars=1000)


def test_a_text_of_many_values_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """30 MB of empty lists in 40 kB, which were two thirds of a gigabyte of objects."""
    bomb = hidden("[" + "[]," * 10_000_000 + "[]]")
    good = hidden(json.dumps([{"input": "1,2,[", "output": "3", "testtype": "stdin"}])) | {"question_content": "Sum."}
    (name,) = order_of(tmp_path, bomb, good).files
    found = import_problems(name, split="train")
    assert [problem.statement for problem in found.problems] == ["Sum."]
    assert found.skipped == {f"a JSON text of more than {MOST_VALUES} values": 1}


def test_a_row_that_takes_more_memory_than_reading_has_is_refused(tmp_path: Path) -> None:
    """One string: no bound on values holds it."""
    order = order_of(tmp_path, hidden(json.dumps("x" * 60_000_000)), LAST | hidden("[]"), layout="livecodebench")
    assert Path(order.files[0]).stat().st_size < 200_000
    reasons = [read.reason for read in read_apart(order, room=96 << 20)]
    assert reasons == [TOO_LARGE, "no tests"]


def test_rows_behind_one_that_ended_the_process_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(room: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-c", DEADLY, str(room)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    monkeypatch.setattr(apart, "started", started)
    monkeypatch.setattr(apart, "MOST_DEATHS", 1)
    deadly = ROW | {"question": "Die."}
    found = list(read_apart(order_of(tmp_path, FIRST, deadly, LAST)))
    assert [read.found.statement if read.found else read.reason for read in found] == ["First.", TOO_LARGE, "Last."]
    with pytest.raises(UserError, match=r"train\.jsonl: 2 rows ended the process that read them"):
        list(read_apart(order_of(tmp_path, deadly, deadly)))
    assert MOST_DEATHS == 8


def test_a_pickle_of_many_opcodes_is_no_text() -> None:
    with pytest.raises(ValueError, match="one text"):
        pickled_text(pickle.dumps("x", protocol=4)[:-1] + b"\x94" * 10_000_000 + b".")


VALUES = st.recursive(st.none() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v))


@given(VALUES)
def test_values_are_counted_and_not_what_stands_in_strings(value: Any) -> None:
    def count(one: Any) -> int:
        inner = list(one.values()) if isinstance(one, dict) else one if isinstance(one, list) else []
        return 1 + sum(map(count, inner)) + (len(one) if isinstance(one, dict) else 0)

    text = json.dumps(value)
    assert bounded_json(text, values=2 * count(value)) == value
    if count(value) > 1:
        with pytest.raises(InvalidProblem, match="values"):
            bounded_json(text, values=count(value) - 2)
