"""reasoning-gym through the stages: the loop with a model that has learnt nothing, so tasks become easier, and with a
scripted one that knows the roots and half of what is harder, so harder tasks are accepted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("reasoning_gym", reason="the reasoning-gym extra is not installed")

from rla.envs.adapters.reasoning_items import Item, made_entry
from rla.llm.base import Request
from rla.llm.chat import ChatFormat
from rla.llm.scripted import ScriptedGenerator
from rla.models.load import load_tokenizer
from rla.store.reading import read_rows
from rla.store.slices import read_json
from tests.integration.conftest import Rla

PARAMS = """
seed: 3
env: {name: reasoning-gym, max_steps: 1, own: {id: chain_sum, level: 1}}
tasks: {train_scenes: 6, test_scenes: 3, tasks_per_scene: 1}
model: {hidden_size: 32, layers: 1, heads: 2, kv_heads: 1, intermediate_size: 32, context: 256}
generator: {backend: transformers, context: 256, threads: 1}
policy: {reply: text, history: full, decoding: free, max_tokens: 8, temperature: 1.0}
judge: {prompt: plain, decoding: admissible, votes: 4, max_tokens: 16, temperature: 1.0}
rollout: {tasks_per_iteration: 4, rollouts_per_task: 4}
train_policy: {lr: 1.0e-3, updates: 1, threads: 1}
train_rm: {lr: 1.0e-3, updates: 1, threads: 1}
adaptation: {max_tasks: 2, expert_episodes: 0}
warm_start:
  threads: 1
  policy: {examples: 8, steps: 2, batch_size: 4, noise: 0.2}
  reward: {examples: 8, steps: 2, batch_size: 4, noise: 0.1}
evaluation: {rollouts_per_task: 2, temperature: 1.0, max_steps: 1}
"""
LOOP = ("rollout", "score-steps", "validate-tasks", "compute-rewards", "train-policy", "train-rm", "adapt-env")


def stages(rla: Rla, *names: str, **options: str) -> None:
    for name in names:
        code, _, error = rla(name, "--run", "r", *(text for item in options.items() for text in item))
        assert code == 0, (name, error)


def levels(row: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = json.loads(row["payload"])["levels"]
    return found


def test_the_loop_turns_twice_and_tasks_that_nobody_solves_become_easier(rla: Rla, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS)
    stages(rla, "make-tasks", "init-model", "warm-start", *LOOP)
    stages(rla, *LOOP, **{"--iteration": "2"})
    stages(rla, "evaluate", "report", **{"--iteration": "2"})
    found = [row for row in read_rows(tmp_path / "r/1/candidates", "candidates") if row["valid"]]
    assert len(found) == 2 and {row["direction"] for row in found} == {"easier"}
    assert [sum(levels(row).values()) for row in found] == [1, 1]
    verdicts = read_rows(tmp_path / "r/2/verdicts", "verdicts")
    assert {row["task_id"] for row in verdicts} == {row["task_id"] for row in found}
    assert {row["accepted"] for row in verdicts} == {False}
    evaluated = read_rows(tmp_path / "r/eval/2/trajectories", "trajectories", ["task_id", "final_observation"])
    assert len(evaluated) == 6 and {row["final_observation"] for row in evaluated} == {"The answer has been taken."}


def test_harder_tasks_are_accepted_where_they_are_solved_now_and_then(
    rla: Rla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every root is solved always, and what came of it in every second rollout."""
    (tmp_path / "params.yaml").write_text(PARAMS.replace("backend: transformers", "backend: scripted"))

    def made(config: Any, *, model: Path, seed: int, training: bool = True) -> Any:
        tokenizer = load_tokenizer(model)
        chat = ChatFormat(tokenizer)
        known: dict[str, tuple[str, bool]] = {}
        for folder, kind in ((tmp_path / "r/0/pool", "tasks"), (tmp_path / "r/1/candidates", "candidates")):
            for row in read_rows(folder, kind) if folder.exists() else []:
                answer = str(made_entry(Item(**json.loads(row["payload"])))["answer"])
                known[row["instruction"]] = answer, row["parent_id"] is None

        def reply(request: Request, seed: int) -> list[int]:
            asked = chat.decode(request.prompt_ids)
            answer, root = next(found for question, found in known.items() if question in asked)
            judged = "judge:" in asked
            said = "score +1" if judged else answer if root or seed % 2 else "no idea"
            return [*chat.encode(said), chat.end_id]

        return ScriptedGenerator(reply, context=config.context), tokenizer

    monkeypatch.setattr("rla.llm.factory.make_generator", made)
    stages(rla, "make-tasks", "init-model", *LOOP[:4], "adapt-env")
    assert {row["outcome"] for row in read_rows(tmp_path / "r/1/trajectories", "trajectories", ["outcome"])} == {1}
    harder = {row["task_id"]: row for row in read_rows(tmp_path / "r/1/candidates", "candidates") if row["valid"]}
    assert [sum(levels(row).values()) for row in harder.values()] == [3, 3]
    stages(rla, "train-policy", "train-rm")
    stages(rla, *LOOP[:4], **{"--iteration": "2"})
    metrics = read_json(tmp_path / "r/2/metrics.json")
    assert (metrics["labelled_steps"], metrics["unlabelled_episodes"]) == (24, 0)  # 4 roots, 2 changed: 4 rollouts each
    verdicts = {row["task_id"]: row["accepted"] for row in read_rows(tmp_path / "r/2/verdicts", "verdicts")}
    assert verdicts.keys() == harder.keys() and any(verdicts.values())
    pool = {row["task_id"] for row in read_rows(tmp_path / "r/2/pool", "tasks", ["task_id"])}
    assert {name for name, accepted in verdicts.items() if accepted} <= pool
