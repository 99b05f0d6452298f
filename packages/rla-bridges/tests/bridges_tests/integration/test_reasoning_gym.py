"""reasoning-gym through the stages: the loop with a model that has learnt nothing, so tasks become easier, and with a
scripted one that knows the roots and half of what is harder, so harder tasks are accepted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rla_bridges.adapters.reasoning_items import Item, made_entry

from rla.llm.base import Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import ScriptedGenerator
from rla.models.load import load_tokenizer
from rla.store.manifest import read_json
from rla.store.reading import read_rows
from tests.integration.conftest import Rla, stages

pytestmark = pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="the reasoning-gym extra is not installed")

PARAMS = """
seed: 3
env: {name: reasoning-gym, max_steps: 1, own: {id: chain_sum, level: 1}}
tasks: {train_scenes: 6, test_scenes: 3, tasks_per_scene: 1}
model: {hidden_size: 32, layers: 1, heads: 2, intermediate_size: 32, context: 256}
launch: {threads: 1}
generator: {backend: transformers, context: 256}
policy: {reply: text, history: full, decoding: free, max_tokens: 8, temperature: 1.0}
judge: {prompt: plain, decoding: admissible, votes: 4, max_tokens: 16, temperature: 1.0}
rollout: {tasks_per_iteration: 4, rollouts_per_task: 4}
train_policy: {lr: 1.0e-3, updates: 1}
train_rm: {lr: 1.0e-3, updates: 1}
adaptation: {max_tasks: 2}
warm_start:
  policy: {examples: 8, steps: 2, batch_size: 4, noise: 0.2}
  reward: {examples: 8, steps: 2, batch_size: 4, noise: 0.1}
evaluation: {rollouts_per_task: 2, temperature: 1.0, max_steps: 1}
"""
LOOP = ("rollout", "score-steps", "validate-tasks", "compute-rewards", "train-policy", "train-rm", "adapt-env")


def answered(folder: Path, monkeypatch: pytest.MonkeyPatch, right: Callable[[dict[str, Any], int], bool]) -> None:
    """The policy of the run gives the right answer where `right(task, seed)` says so; the judge likes everything but
    what it sees with an even seed.
    """

    def made(config: Any, *, model: Path, seed: int, training: bool = True) -> Any:
        tokenizer = load_tokenizer(model)
        chat = ChatFormat(tokenizer)
        known: dict[str, tuple[str, dict[str, Any]]] = {}
        for place, kind in ((folder / "r/0/pool", "tasks"), (folder / "r/1/candidates", "candidates")):
            for row in read_rows(place, kind) if place.exists() else []:
                known[row["instruction"]] = str(made_entry(Item(**json.loads(row["payload"])))["answer"]), row

        def reply(request: Request, seed: int) -> list[int]:
            asked = chat.decode(request.prompt_ids)
            answer, task = next(found for question, found in known.items() if question in asked)
            if "judge:" in asked:
                said = "score +1" if seed % 2 else "score -1"
            else:
                said = answer if right(task, seed) else "no idea"
            return [*chat.encode(said), chat.end_id]

        return ScriptedGenerator(reply, context=config.context), tokenizer

    monkeypatch.setattr("rla.llm.factory.make_generator", made)


def levels(row: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = json.loads(row["payload"])["levels"]
    return found


def test_the_loop_turns_and_tasks_that_nobody_solves_become_easier(rla: Rla, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS)
    stages(rla, "make-tasks", "init-model", "warm-start", *LOOP)
    stages(rla, "evaluate", "report", **{"--iteration": "1"})
    stages(rla, "rollout", "validate-tasks", **{"--iteration": "2"})
    found = [row for row in read_rows(tmp_path / "r/1/candidates", "candidates") if row["valid"]]
    assert len(found) == 2 and {row["direction"] for row in found} == {"easier"}
    assert [sum(levels(row).values()) for row in found] == [1, 1]
    verdicts = read_rows(tmp_path / "r/2/verdicts", "verdicts")
    assert {row["task_id"] for row in verdicts} == {row["task_id"] for row in found}
    assert {row["accepted"] for row in verdicts} == {False}
    evaluated = read_rows(tmp_path / "r/eval/1/trajectories", "trajectories", ["task_id", "final_observation"])
    assert len(evaluated) == 6 and {row["final_observation"] for row in evaluated} == {"The answer has been taken."}


def test_harder_tasks_are_accepted_where_they_are_solved_now_and_then(
    rla: Rla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every root is solved always, and what came of it in every second rollout."""
    (tmp_path / "params.yaml").write_text(PARAMS.replace("backend: transformers", "backend: scripted"))

    answered(tmp_path, monkeypatch, lambda task, seed: task["parent_id"] is None or seed % 2 == 1)
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


def test_judging_what_trains_gives_the_same_advantages(
    rla: Rla, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of the tasks is always solved, a third never, and a third now and then."""
    (tmp_path / "params.yaml").write_text(PARAMS.replace("backend: transformers", "backend: scripted"))
    answered(
        tmp_path, monkeypatch, lambda task, seed: (int(task["task_id"], 16) % 3, seed % 2) in ((0, 0), (0, 1), (1, 1))
    )

    def advantages() -> list[list[tuple[str, int, float]]]:
        found = []
        for kind in ("policy", "rm"):
            rows = read_rows(tmp_path / f"r/1/rewards/{kind}", f"{kind}_rewards")
            found.append([(row["trajectory_id"], row["step"], row["advantage"]) for row in rows if row["advantage"]])
        return found

    stages(rla, "make-tasks", "init-model", "rollout", "validate-tasks", "score-steps", "compute-rewards")
    monkeypatch.setattr("rla.adaptation.selection.SAMPLED", 0.0)
    everything, judged = advantages(), len(read_rows(tmp_path / "r/1/scores", "scores"))
    code, _, error = rla("score-steps", "--run", "r", "--overwrite", "--set", "judge.tasks=training")
    assert code == 0, error
    code, _, error = rla("compute-rewards", "--run", "r", "--overwrite", "--set", "judge.tasks=training")
    assert code == 0, error
    assert all(everything) and advantages() == everything
    kept = read_rows(tmp_path / "r/1/scores", "scores")
    outcomes: dict[str, set[int]] = {}
    for row in read_rows(tmp_path / "r/1/trajectories", "trajectories", ["task_id", "outcome"]):
        outcomes.setdefault(row["task_id"], set()).add(row["outcome"])
    mixed = {task for task, found in outcomes.items() if len(found) == 2}
    assert 0 < len(mixed) < len(outcomes) and len(kept) < judged
    assert {row["task_id"] for row in kept} >= mixed
    assert {row["task_id"] for row in kept} - mixed <= {task for task, found in outcomes.items() if found == {-1}}
