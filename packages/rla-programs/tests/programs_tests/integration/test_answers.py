"""`rla evaluate --from`: answers of others are judged without any model; and programs leave for the official runner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rla_bridges.adapters.reasoning_items import item_of, known_answer
from rla_programs.coding.data.problems import problem_of

from programs_tests.integration.test_coding import PARAMS as CODING
from rla.store.manifest import read_json
from rla.store.reading import read_tasks
from tests.integration.conftest import Rla

REASONING = """
env: {name: reasoning-gym, max_steps: 1, own: {id: chain_sum, level: 1}}
tasks: {train_scenes: 2, test_scenes: 3, tasks_per_scene: 1}
policy: {reply: tagged, max_tokens: 8}
judge: {enabled: false}
"""


def lines(file: Path, rows: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.fixture
def reasoning(rla: Rla, tmp_path: Path) -> list[Any]:
    """The held-out tasks of a run that has no model."""
    pytest.importorskip("reasoning_gym", reason="the reasoning-gym extra is not installed")
    (tmp_path / "params.yaml").write_text(REASONING)
    assert rla("make-tasks", "--run", "r")[0] == 0
    return read_tasks(tmp_path / "r/test/pool")


def test_answers_to_questions_are_judged_and_vote(rla: Rla, tmp_path: Path, reasoning: list[Any]) -> None:
    """Of task a 3 of 4 are right and agree; of b one of 4, and two wrong ones agree; c has no answer."""
    first, second, _ = reasoning
    right = {task.task_id: f"I add. <action>{known_answer(item_of(task))}</action>" for task in (first, second)}
    wrong = "<action>99999</action>"
    rows = [
        {"task_id": first.task_id, "response": [right[first.task_id]] * 3 + ["no tags"]},
        {"question": second.instruction, "response": [right[second.task_id], wrong, wrong, "<action>5 5</action>"]},
        {"task_id": "nobody", "response": "1"},
    ]
    code, out, error = rla("evaluate", "--run", "r", "--from", lines(tmp_path / "a.jsonl", rows))
    assert code == 0, error
    assert "8 answers to 2 tasks; 1 tasks without an answer, 1 of 3 rows belong to no task" in out + error
    found = read_json(tmp_path / "r/eval/0/answers.json")
    assert (found["episodes"], found["success"], found["invalid_actions"], found["truncated"]) == (8, 0.5, 1, None)
    assert found["from"] | {"sha256": ""} == {
        **{"file": "a.jsonl", "sha256": "", "rows": 3, "unmatched": 1},
        **{"answers": 8, "tasks": 2, "unanswered_tasks": 1, "without_answer": 0},
    }
    # pass@2: 1 - C(1,2)/C(4,2) = 1 and 1 - C(3,2)/C(4,2) = 1/2; maj@4: a is won, b lost
    at_k = found["at_k"]
    assert at_k["pass"]["2"]["estimate"] == 0.75 and at_k["maj"]["4"]["estimate"] == 0.5
    assert not (tmp_path / "r/eval/0/metrics.json").exists() and not (tmp_path / "r/eval/0/trajectories").exists()


def test_a_dump_of_verl_is_judged_anew(rla: Rla, tmp_path: Path, reasoning: list[Any]) -> None:
    """The prompt is decorated, and the score of the dump is not believed."""
    rows = [
        {"input": f"user\n{task.instruction}\nBe brief.\nassistant\n", "output": said, "gts": "?", "score": 0.0}
        for task in reasoning
        for said in (f"<action>{known_answer(item_of(task))}</action>", "<action>?</action>")
    ]
    out = tmp_path / "theirs.json"
    file = lines(tmp_path / "7.jsonl", rows)
    code, _, error = rla(
        "evaluate", "--run", "r", "--from", file, "--metrics", str(out), "--set", "evaluation.estimator=published"
    )
    assert code == 0, error
    found = read_json(out)
    assert (found["success"], found["from"]["unmatched"]) == (0.5, 0)
    assert found["at_k"]["estimator"] == "published" and set(found["at_k"]) >= {"avg", "best", "maj"}


def test_a_file_of_which_nothing_belongs_to_the_pool_is_refused(rla: Rla, tmp_path: Path, reasoning: list[Any]) -> None:
    file = lines(tmp_path / "a.jsonl", [{"question": "something else", "response": "1"}])
    code, _, error = rla("evaluate", "--run", "r", "--from", file)
    assert code == 2 and "none of its 1 rows belongs to one of the 3 tasks of test" in error
    code, _, error = rla("evaluate", "--run", "r", "--from", file, "--workers", "2")
    assert code == 2 and "--workers: one process judges" in error


def test_an_environment_of_many_steps_cannot_judge_answers(rla: Rla, tmp_path: Path) -> None:
    assert rla("make-tasks", "--run", "r")[0] == 0
    tasks = read_tasks(tmp_path / "r/test/pool")
    file = lines(tmp_path / "a.jsonl", [{"task_id": task.task_id, "response": "look"} for task in tasks])
    code, _, error = rla("evaluate", "--run", "r", "--from", file)
    assert code == 2 and "the episode goes on after the answer" in error
    assert not (tmp_path / "r/eval/0/answers.json").exists()


TOOL = """
env: {name: tool, max_steps: 4, own: {format: hermes, execution: {backend: rlimits}}}
tasks: {train_scenes: 1, test_scenes: 2, tasks_per_scene: 1, kinds: [arithmetic]}
judge: {enabled: false}
"""
CALL = '<tool_call>\n{"name": "code_interpreter", "arguments": {"code": "open(\'ran\', \'w\')"}}\n</tool_call>'


def test_transcripts_with_calls_are_judged_and_nothing_is_run(rla: Rla, tmp_path: Path) -> None:
    """Of four transcripts with 1, 1, 2 and 1 calls two are right; the last one ends with its call, and is lost."""
    (tmp_path / "params.yaml").write_text(TOOL)
    assert rla("make-tasks", "--run", "r")[0] == 0
    first, second = read_tasks(tmp_path / "r/test/pool")
    right = {task.task_id: f"\\boxed{{{json.loads(task.payload)['answer']}}}" for task in (first, second)}
    result = "<tool_response>\n7\n</tool_response>"
    call = {"function": {"name": "code_interpreter", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": second.instruction},
        {"role": "assistant", "content": "I compute.", "tool_calls": [call]},
        {"role": "tool", "content": "7"},
        {"role": "assistant", "content": right[second.task_id]},
    ]
    rows = [
        {"task_id": first.task_id, "response": f"{CALL}{result}{right[first.task_id]}"},
        {"messages": messages},
        {"messages": [*messages[:-1], messages[1], messages[2], {"role": "assistant", "content": "= 0.5"}]},
        {"input": first.instruction, "output": f"{right[first.task_id]} {CALL}"},
    ]
    code, out, error = rla("evaluate", "--run", "r", "--from", lines(tmp_path / "a.jsonl", rows))
    assert code == 0, error
    assert "1 transcripts end without an answer, and are lost" in out + error
    found = read_json(tmp_path / "r/eval/0/answers.json")
    assert (found["episodes"], found["success"], found["env_errors"], found["from"]["without_answer"]) == (4, 0.5, 0, 1)
    assert (found["tool_calls"], found["tool_no_call"], found["tool_calls_ran"]) == (1.25, 0.0, None)
    assert (found["steps"], found["mean_steps"]) == (8, 2.0)  # 2, 2, 3 and 1 replies
    assert not list(tmp_path.rglob("ran"))
    code, _, error = rla(
        "evaluate", "--run", "r", "--from", lines(tmp_path / "b.jsonl", [{"messages": [{"role": "x"}]}])
    )
    assert code == 2 and "b.jsonl, row 1: a message has the role 'x'; messages is a list of objects" in error


def test_programs_are_judged_in_the_sandbox(rla: Rla, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(CODING)
    assert rla("make-tasks", "--run", "r")[0] == 0
    rows = [
        {"task_id": task.task_id, "response": [f"So:\n```python\n{problem_of(task.payload).solution}\n```", "none"]}
        for task in read_tasks(tmp_path / "r/test/pool")
    ]
    code, _, error = rla("evaluate", "--run", "r", "--from", lines(tmp_path / "a.jsonl", rows))
    assert code == 0, error
    found = read_json(tmp_path / "r/eval/0/answers.json")
    assert (found["episodes"], found["success"], found["invalid_actions"]) == (6, 0.5, 3)
    assert found["at_k"]["pass"]["2"]["estimate"] == 1.0 and "maj" not in found["at_k"]
