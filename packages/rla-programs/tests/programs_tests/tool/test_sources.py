"""The names of benchmarks for rows that name no source, and what decoration makes of the names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rla_programs.tool.decoration import decoration_of
from rla_programs.tool.imported import import_questions
from rla_programs.tool.importing.sources import source_of
from rla_programs.tool.questions import IMPORTED

HUB = "cache/snapshots/0a1b/data/train.parquet"


@pytest.mark.parametrize(
    ("file", "asked", "source"),
    [
        ("eval/aime2024/aime_2024_problems.parquet", "eval", "aime2024"),
        ("eval/aime-2025/data.parquet", "eval", "aime2025"),  # the folder
        (HUB, "hub:owner/aime25", "aime2025"),  # the data set
        ("aime2024/aime25.jsonl", "aime2024", "aime2025"),  # the file comes first
        ("aime_1983_2024.jsonl", "aime_1983_2024.jsonl", "aime_1983_2024"),  # a range of years is no year
        ("aime90.jsonl", "aime90.jsonl", "aime90"),  # 90 problems
        ("aime2024/my/eval/data.jsonl", "aime2024/my/eval", "eval"),  # a folder further up tells nothing
    ],
)
def test_aime_is_named_with_the_year_of_the_nearest_name(file: str, asked: str, source: str) -> None:
    assert source_of("aime", {}, file=file, asked=asked) == source


@pytest.mark.parametrize(
    ("row", "asked", "source"),
    [
        ({"ID": "2024-II-4"}, "contests.jsonl", "aime2024"),  # only AIME has such ids
        ({"ID": "2024-II-4"}, "aime2025.jsonl", "aime2024"),  # the row comes before the names
        ({"id": 60, "year": "2024"}, "aime.jsonl", "aime2024"),
        ({"ID": "x", "Year": 1999}, "aime.jsonl", "aime1999"),
        ({"year": "2024"}, "contests.jsonl", "contests"),  # another contest has years, too
        ({"year": "about 2024"}, "aime.jsonl", "aime"),
        ({"year": True}, "aime.jsonl", "aime"),
    ],
)
def test_the_year_of_a_row_of_aime(row: dict[str, Any], asked: str, source: str) -> None:
    assert source_of("aime", row, file=f"data/{asked}", asked=asked) == source


def test_a_layout_that_somebody_has_named_stands_in_the_source() -> None:
    asked = "data/problems.jsonl"
    assert source_of("aime", {}, file=asked, asked=asked, named=True) == "aime-problems"
    assert source_of("aime", {"year": 2024}, file=asked, asked=asked, named=True) == "aime2024"


def test_gpqa_and_livecodebench_have_their_own_names() -> None:
    published = "eval/gpqa-diamond/gpqa_diamond.parquet"
    assert source_of("gpqa", {}, file=published, asked="eval") == "gpqa-diamond"
    assert source_of("gpqa", {}, file="questions.jsonl", asked="questions.jsonl") == "gpqa"
    published = "eval/livecodebench-v6/lcb_v6_2502_2505.parquet"
    assert source_of("livecodebench", {}, file=published, asked="eval") == "livecodebench-v6"
    assert source_of("livecodebench", {}, file="data.jsonl", asked="hub:owner/code") == "livecodebench"


def test_a_plain_file_has_the_name_of_what_was_asked_for() -> None:
    assert source_of("plain", {}, file=HUB, asked="hub:owner/MATH-500@main:test.jsonl") == "math-500"
    assert source_of("verl", {}, file="data/Mixed.parquet", asked="data/Mixed.parquet") == "mixed"
    assert source_of("plain", {}, file="x.jsonl", asked=".") == "questions"


@pytest.mark.parametrize(
    ("source", "kind"),
    [("aime2024", "aime"), ("aime2025", "aime"), ("gpqa-diamond", "gpqa"), ("livecodebench-v6", "lcb")],
)
def test_decoration_knows_the_names(source: str, kind: str) -> None:
    assert decoration_of(source, "") == kind


def test_a_row_that_names_its_source_keeps_it_and_others_of_the_file_have_that_of_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "aime2024"
    folder.mkdir()
    rows = [{"Problem": "P", "Answer": 25, "data_source": "AIME2024"}, {"Problem": "Q", "Answer": 3}]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tasks = import_questions(tmp_path, split="aime2024")
    assert [(task.kind, task.scene) for task in tasks] == [("AIME2024", IMPORTED), ("aime2024", IMPORTED)]
