"""Programs of an evaluation as the official runner of LiveCodeBench reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rla_programs.answering.livecodebench import code_question, export_livecodebench, program_of
from rla_programs.tool.imported import import_questions

from rla.cli.app import run as call
from rla.errors import UserError
from rla.rollouts.play import trajectory_counts
from rla.store.records import Task
from rla.store.shards import Origin, ShardWriter, write_shard
from tests.unit.builders import configured, step, task, trajectory

ORIGIN = Origin(config="c", inputs={}, seed=0)
CONFIG = configured(env="coding")


def problem(source: str) -> str:
    return json.dumps({"statement": "Add.", "tests": [{"input": "1", "output": "1"}], "source": source})


def evaluated(run: Path, number: int, *tasks: Task, reply: str = "```python\nprint({rollout})\n```") -> Path:
    """Two episodes of each task, the second one first."""
    if not (run / "test/pool").exists():
        write_shard(run / "test/pool", "tasks", [one.row() for one in tasks], ORIGIN, counts={})
    writer = ShardWriter(run / f"eval/{number}/trajectories", "trajectories", ORIGIN)
    for index, one in enumerate(tasks):
        rows = [
            trajectory(
                f"{one.task_id}/{rollout}",
                task_id=one.task_id,
                rollout=rollout,
                steps=[step(reply=reply.replace("{rollout}", str(rollout)))],
            ).row()
            for rollout in (1, 0)
        ]
        writer.write(index, rows)
    writer.finish(trajectory_counts(writer.parts()))
    return run


def test_each_question_has_the_programs_of_its_episodes(tmp_path: Path) -> None:
    """Sorted by the id of the question as text, programs by their rollouts; of the last evaluation."""
    tasks = [
        task("t1", env="coding", payload=problem("livecodebench/arc9_b")),
        task("t2", env="coding", payload=problem("livecodebench/abc10_a")),
    ]
    run = evaluated(tmp_path / "r", 0, *tasks)
    evaluated(run, 3, *tasks)
    told = export_livecodebench(run, CONFIG, iteration=None, split=None, out=None)
    assert told == [f"{run}/eval/3/livecodebench.json: 4 programs for 2 questions, evaluation 3"]
    assert json.loads((run / "eval/3/livecodebench.json").read_text()) == [
        {"question_id": "abc10_a", "code_list": ["print(0)", "print(1)"]},
        {"question_id": "arc9_b", "code_list": ["print(0)", "print(1)"]},
    ]


def test_a_question_without_an_id_has_that_of_its_task(tmp_path: Path) -> None:
    run = evaluated(tmp_path / "r", 0, task("t1", env="coding", payload=problem("builtin")))
    told = export_livecodebench(run, CONFIG, iteration=0, split="test", out=tmp_path / "o.json")
    assert "1 questions have no id of LiveCodeBench" in told[1]
    assert [row["question_id"] for row in json.loads((tmp_path / "o.json").read_text())] == ["t1"]


def test_a_problem_inside_a_question_is_found_and_other_questions_are_left_out(tmp_path: Path) -> None:
    inside = json.dumps({"text": "Add.", "check": "code", "problem": problem("livecodebench/abc1_a")})
    other = json.dumps({"text": "1 + 1", "check": "math", "problem": None})
    found = code_question(task("t1", payload=inside))
    assert found is not None and (found.name, found.known, found.bare) == ("abc1_a", True, False)
    assert code_question(task("t2", payload=other)) is None
    run = evaluated(tmp_path / "r", 0, task("t2", payload=other))
    with pytest.raises(UserError, match="none of its tasks asks for a program"):
        export_livecodebench(run, CONFIG, iteration=None, split=None, out=None)


def test_the_evaluation_file_of_the_tool_keeps_its_ids(tmp_path: Path) -> None:
    """One question of the file has an id and one has none, whose task stands in for it."""
    truth = json.dumps({"ground_truth": {"inputs": ["1"], "outputs": ["2"]}})
    rows = [
        {"problem": "Double.", "ability": "code", "reward_model": truth, "extra_info": '{"question_id": "abc1_a"}'},
        {"problem": "Double it.", "ability": "code", "reward_model": truth, "extra_info": '{"index": 1}'},
    ]
    file = tmp_path / "lcb_v6.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    tasks = import_questions(file, split="test")
    run = evaluated(tmp_path / "r", 0, *tasks)
    told = export_livecodebench(run, CONFIG, iteration=None, split=None, out=tmp_path / "o.json")
    assert "4 programs for 2 questions" in told[0] and "1 questions have no id of LiveCodeBench" in told[1]
    names = [row["question_id"] for row in json.loads((tmp_path / "o.json").read_text())]
    assert set(names) == {"abc1_a", tasks[1].task_id}


def test_a_run_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing was evaluated on test; call `rla evaluate` first"):
        export_livecodebench(tmp_path, CONFIG, iteration=None, split=None, out=None)


@pytest.mark.parametrize(
    ("iteration", "split", "why"),
    [(2, None, "no complete evaluation 2 on test"), (None, "other", "--split other: not a held-out split of this run")],
)
def test_an_evaluation_that_does_not_exist_is_refused(
    tmp_path: Path, iteration: int | None, split: str | None, why: str
) -> None:
    run = evaluated(tmp_path / "r", 0, task("t1", env="coding", payload=problem("builtin")))
    with pytest.raises(UserError, match=why):
        export_livecodebench(run, CONFIG, iteration=iteration, split=split, out=None)


@pytest.mark.parametrize(
    ("reply", "bare", "code"),
    [
        ("```python\na\n```\n```\nb\n```", False, "a"),  # the last one that is python
        ("```\na\n```\n```\nb\n```", False, "b"),  # without a tag the last one
        ("```python\na\n```\n```py\nb", False, "a"),  # one that never closes is no block
        ("a = 1", False, ""),
        ("a = 1", True, "read"),  # what was told to the environment
    ],
)
def test_the_program_of_a_reply(reply: str, bare: bool, code: str) -> None:
    row: dict[str, Any] = {"reply": reply, "action": "read", "valid": True}
    assert program_of(row, bare=bare) == code
    if bare:
        assert program_of(row | {"valid": False}, bare=True) == ""


def test_the_command_writes_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated(tmp_path / "r", 0, task("t1", env="coding", payload=problem("livecodebench/abc10_a")))
    (tmp_path / "params.yaml").write_text("env: {name: coding}\n")
    monkeypatch.chdir(tmp_path)
    arguments = ["export", "--to", "livecodebench", "--run", "r", "--params", "params.yaml"]
    assert call([*arguments]) == 0
    assert "r/eval/0/livecodebench.json: 2 programs for 1 questions" in capsys.readouterr().out
    assert call([*arguments, "--iteration", "0", "--iteration", "1"]) == 2
    assert "livecodebench gets one evaluation" in capsys.readouterr().err
