"""`rla make-tasks --env tool --from`: the questions of a data file become a pool, and a wrong layout is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rla_programs.tool.questions import question_of

from rla.cli.app import run
from rla.store.reading import read_tasks

pytestmark = pytest.mark.usefixtures("forked_python")  # rows are read in a process


def test_questions_of_a_file_become_a_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "data_source": "math_dapo",
            "prompt": [{"role": "user", "content": f"What is {number} + 2?"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": f'["{number + 2}"]', "style": "rule"},
        }
        for number in (1, 1, 2)
    ]
    Path("train.jsonl").write_text("\n".join(map(json.dumps, [*rows, {"data_source": "math_dapo"}])))
    call = ["make-tasks", "--env", "tool", "--from", "train.jsonl", "--split", "train", "--run", "r"]
    assert run(call) == 0
    printed = "".join(capfd.readouterr())
    assert "2 questions (2 math_dapo), 2 rows skipped" in printed and "1 the same question again" in printed
    found = [question_of(task) for task in read_tasks(Path("r/0/pool"))]
    assert sorted(one.answer for one in found) == ["3", "4"]
    assert run([*call[:-1], "q", "--set", "env.own.layout=gpqa"]) == 2
    assert "not those of the layout gpqa" in capfd.readouterr().err
