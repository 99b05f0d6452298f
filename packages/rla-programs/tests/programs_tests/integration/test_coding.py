"""The coding setting through the stages: four programs and five written tests whose numbers are worked out by hand in
`packages/rla-programs/tests/programs_tests/coding/test_example.py`, and the loop on built-in problems.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from bridges_tests.engines.chat_completions import ChatCompletions, reply

from programs_tests.coding.builders import few_built_in_texts
from programs_tests.coding.test_example import PROBLEM, REPLIES, WRITTEN
from rla.cli.app import run as call
from rla.llm.base import Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import ScriptedGenerator
from rla.models.load import load_tokenizer
from rla.seeds import derive
from rla.store.manifest import read_json
from rla.store.reading import read_rows
from tests.integration.conftest import Rla

PARAMS = """
seed: 3
env:
  name: coding
  max_steps: 1
  own: {prompt: published, tests: 4, execution: {backend: rlimits}}  # the programs are this test's own
tasks: {size: tiny, train_scenes: 6, test_scenes: 3, tasks_per_scene: 1}
model: {hidden_size: 32, layers: 1, heads: 2, intermediate_size: 32, context: 512}
launch: {threads: 1}
generator: {backend: scripted, context: 512}
policy: {reply: text, repeat_task: false, history: full, decoding: free, max_tokens: 96, temperature: 1.0}
judge: {prompt: plain, decoding: free, votes: 5, max_tokens: 24, temperature: 1.0}
rollout: {tasks_per_iteration: 4, rollouts_per_task: 4}
credit: {step_weight: 0.5, policy_band: [0.2, 0.8]}
train_policy: {lr: 1.0e-3, updates: 1}
train_rm: {lr: 1.0e-3, updates: 1}
adaptation: {max_tasks: 2}
warm_start:
  policy: {examples: 4, steps: 1, batch_size: 2, noise: 0.5}
  reward: {examples: 4, steps: 1, batch_size: 2, noise: 0.5}
evaluation: {rollouts_per_task: 4, temperature: 1.0, max_steps: 1}
"""
WARN = "guards: {stop: []}\n"  # for models that have learnt nothing
LOOP = ("rollout", "score-steps", "validate-tasks", "compute-rewards", "train-policy", "train-rm", "adapt-env")


@pytest.fixture(scope="module", autouse=True)
def few_texts() -> Iterator[None]:
    with few_built_in_texts():
        yield


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one imported problem, and its models."""
    folder = tmp_path_factory.mktemp("imported")
    tests = {"test_input": [t.input for t in PROBLEM.tests], "test_output": [t.output for t in PROBLEM.tests]}  # type: ignore[union-attr]
    data = folder / "data.json"
    data.write_text(json.dumps([{"question": PROBLEM.statement, **tests}]))
    (folder / "params.yaml").write_text(PARAMS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert call(["make-tasks", "--run", "r", "--from", str(data), "--split", "train"]) == 0
        assert call(["init-model", "--run", "r"]) == 0
    return folder


@pytest.fixture
def example(imported: Path, rla: Rla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, whose policy and reward model say what the example says."""
    shutil.copytree(imported, tmp_path, dirs_exist_ok=True)
    (task,) = read_rows(tmp_path / "r/0/pool", "tasks")
    rollouts = {derive(derive(3, task["task_id"], number, i), 0): number for number in range(4) for i in (0, 1)}

    def made(config: Any, *, model: Path, seed: int, training: bool = True) -> Any:
        tokenizer = load_tokenizer(model)
        chat = ChatFormat(tokenizer)

        def reply(request: Request, seed: int) -> list[int]:
            said = REPLIES[rollouts[seed]] if request.session else WRITTEN[seed - request.seed]
            return [*chat.encode(said), chat.end_id]

        return ScriptedGenerator(reply, context=config.context), tokenizer

    monkeypatch.setattr("rla.llm.factory.make_generator", made)
    return tmp_path


def stages(rla: Rla, *names: str, **options: str) -> None:
    for name in names:
        code, _, error = rla(name, "--run", "r", *(text for item in options.items() for text in item))
        assert code == 0 and "alfworld" not in error, (name, error)


def test_matrices_rewards_and_metrics_of_the_example(rla: Rla, example: Path) -> None:
    stages(rla, *LOOP[:6])
    run = example / "r/1"
    rows = sorted(read_rows(run / "trajectories", "trajectories"), key=lambda row: row["rollout"])
    assert [row["final_observation"] for row in rows] == ["tests: 11111"] * 2 + ["tests: 11010", "tests: 01000"]
    assert [row["outcome"] for row in rows] == [1, 1, -1, -1]
    order = {row["trajectory_id"]: row["rollout"] for row in rows}

    scores = sorted(read_rows(run / "scores", "scores"), key=lambda row: order[row["trajectory_id"]])
    matrix = [[one["score"] for one in row["judgements"]] for row in scores]
    assert matrix == [[1, 1, 1, -1, None], [1, 1, 1, -1, None], [1, 1, -1, 1, None], [1, -1, -1, -1, None]]
    assert [one["text"] for one in scores[0]["judgements"]] == WRITTEN
    assert [bool(one["token_ids"]) for row in scores for one in row["judgements"]] == [True] * 5 + [False] * 15

    policy = sorted(read_rows(run / "rewards/policy", "policy_rewards"), key=lambda row: order[row["trajectory_id"]])
    assert [row["reward"] for row in policy] == pytest.approx([1.5, 1.5, 0.6 + 1 / 3, 0.2 + 1 / 6])
    tests = read_rows(run / "rewards/rm", "rm_rewards")
    assert [row["reward"] for row in tests] == [0, 1, 2, -1, -3]
    assert [row["advantage"] for row in tests] == pytest.approx([x / sqrt(2.96) for x in (0.2, 1.2, 2.2, -0.8, -2.8)])

    metrics = read_json(run / "metrics.json")
    expected = {"pass_at_1": 0.5, "pass_at_2": 5 / 6, "best_of_4": 2 / 3, "ut_accuracy": 0.6, "detect": 0.2}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    assert (metrics["success"], metrics["detect_trials"], metrics["rm_process_accuracy"]) == (0.5, 5, None)
    assert metrics["mu"] == pytest.approx(6 / 8 + 4 / 8)  # right programs pass 6 of 8 tests, wrong ones fail 4 of 8
    assert read_json(run / "policy/metrics.json")["sequences"] == 4
    assert read_json(run / "rm/metrics.json")["sequences"] == 1


def test_an_evaluation_measures_the_reward_model_where_there_is_one(rla: Rla, example: Path) -> None:
    pool, policy = str(example / "r/0/pool"), str(example / "r/init/policy")
    call = ("evaluate", "--run", "r", "--tasks", pool, "--policy", policy)
    assert rla(*call)[0] == 0
    alone = read_json(example / "r/eval/0/metrics.json")
    assert (alone["success"], alone["pass_at_4"], alone["ut_accuracy"], "best_of_4" in alone) == (0.5, 1.0, None, False)
    assert rla(*call, "--rm", str(example / "r/init/rm"))[0] == 0
    metrics = read_json(example / "r/eval/0/metrics.json")
    assert (metrics["best_of_4"], metrics["ut_accuracy"], metrics["detect"]) == pytest.approx((2 / 3, 0.6, 0.2))
    assert (metrics["ut_accuracy_tasks"], metrics["ut_accuracy_trials"]) == (1, 5)
    assert len(read_rows(example / "r/eval/0/scores", "scores")) == 4


def test_an_evaluation_asks_again_for_replies_that_a_chat_server_has_not_given(rla: Rla, example: Path) -> None:
    def answer(number: int, body: dict[str, Any]) -> Any:
        return web.Response(status=400, text="filtered") if angry and body["seed"] % 2 else reply("Input:\n1")

    call = ("evaluate", "--run", "r", "--tasks", str(example / "r/0/pool"), "--policy", str(example / "r/init/policy"))
    angry = True
    with ChatCompletions(answer) as server:
        keys = (f"judge.server.url={server.url}", "judge.server.model=m")
        call += tuple(word for key in (*keys, "guards.stop=[]") for word in ("--set", key))
        code, _, error = rla(*call)
        assert code == 2 and f"replies of {server.url} failed, more than rollout.max_failed_share" in error
        angry = False
        assert rla(*call)[0] == 0
    rows = read_rows(example / "r/eval/0/scores", "scores")
    assert [len(row["judgements"]) for row in rows] == [5] * 4


def test_an_evaluation_says_why_nothing_judges(rla: Rla, example: Path) -> None:
    call = ("evaluate", "--run", "r", "--tasks", str(example / "r/0/pool"), "--policy", str(example / "r/init/policy"))
    error = rla(*call, "--set", "judge.enabled=false")[2]
    assert "judge.enabled is false; programs are evaluated alone" in error and "no reward model" not in error


def test_the_loop_turns_on_built_in_problems_with_a_model_that_has_learnt_nothing(rla: Rla, tmp_path: Path) -> None:
    """Nothing is solved, so tasks that should be easier are proposed, proven, pending, played and judged."""
    small = PARAMS.replace("backend: scripted", "backend: transformers").replace("max_tokens: 96", "max_tokens: 8")
    (tmp_path / "params.yaml").write_text(
        small.replace("size: tiny", "size: small").replace("plain", "published") + WARN
    )
    stages(rla, "make-tasks", "init-model", "warm-start", *LOOP)
    stages(rla, "evaluate", "report", **{"--iteration": "1"})
    stages(rla, "rollout", "validate-tasks", **{"--iteration": "2"})
    found = read_rows(tmp_path / "r/1/candidates", "candidates")
    valid = [row for row in found if row["valid"]]
    assert len(valid) == 2 and all("0 of 4 programs pass all tests" in row["critique"] for row in valid)
    assert {row["direction"] for row in valid} == {"easier"}
    verdicts = read_rows(tmp_path / "r/2/verdicts", "verdicts")
    assert {row["task_id"] for row in verdicts} == {row["task_id"] for row in valid}
    played = {row["task_id"] for row in read_rows(tmp_path / "r/2/trajectories", "trajectories", ["task_id"])}
    assert played >= {row["task_id"] for row in valid}
    assert read_json(tmp_path / "r/eval/1/metrics.json")["ut_accuracy_trials"] == 3 * 5
