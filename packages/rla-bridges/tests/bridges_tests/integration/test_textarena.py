"""A game of TextArena through the stages: an iteration from new models that choose among the game's moves."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from rla_bridges.adapters.textarena_games import GAMES

from rla.store.manifest import read_json
from rla.store.reading import read_rows
from tests.integration.conftest import Rla, stages

pytestmark = pytest.mark.skipif(find_spec("textarena") is None, reason="the textarena extra is not installed")

PARAMS = """
seed: 3
env: {name: textarena, max_steps: 5, own: {id: GuessTheNumber-v0, commands: true}}
tasks: {train_scenes: 4, test_scenes: 2, tasks_per_scene: 1}
model: {hidden_size: 32, layers: 1, heads: 2, intermediate_size: 32, context: 512}
launch: {threads: 1}
generator: {backend: transformers, context: 512}
policy: {reply: text, history: full, decoding: admissible, max_tokens: 8, temperature: 1.0}
judge: {prompt: plain, decoding: admissible, votes: 4, max_tokens: 16, temperature: 1.0}
rollout: {tasks_per_iteration: 4, rollouts_per_task: 4}
train_policy: {lr: 1.0e-3, updates: 1}
train_rm: {lr: 1.0e-3, updates: 1}
credit: {reward_model_band: [0.0, 1.0]}
adaptation: {enabled: false}
warm_start: {enabled: false}
evaluation: {rollouts_per_task: 2, temperature: 1.0, max_steps: 6}
pool: {workers: 2}
"""
LOOP = ("rollout", "score-steps", "validate-tasks", "compute-rewards", "train-policy", "train-rm")


def test_an_iteration_of_a_game_and_an_evaluation(rla: Rla, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS)
    stages(rla, "make-tasks", "init-model", "warm-start", *LOOP)
    stages(rla, "evaluate", "report", **{"--iteration": "1"})
    rows = read_rows(tmp_path / "r/1/trajectories", "trajectories")
    assert len(rows) == 16 and {row["stop_reason"] for row in rows} <= {"won", "max_steps"}
    assert {row["outcome"] for row in rows} == {1, -1}
    actions = {step["action"] for row in rows for step in row["steps"]}
    assert actions <= set(GAMES["GuessTheNumber-v0"]) and len(actions) > 10
    assert read_json(tmp_path / "r/1/metrics.json")["unparsable_votes"] == 0
    for model in ("policy", "rm"):
        assert read_json(tmp_path / f"r/1/{model}/metrics.json")["sequences"] > 0
    assert len(read_rows(tmp_path / "r/eval/1/trajectories", "trajectories", ["task_id"])) == 4


def test_a_stage_that_textarena_has_no_ability_for_says_what_to_switch_off(rla: Rla, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(PARAMS.replace("warm_start: {enabled: false}", "warm_start: {}"))
    stages(rla, "make-tasks", "init-model")
    code, _, error = rla("warm-start", "--run", "r")
    assert code == 2 and "Demonstrates" in error and "set warm_start.enabled: false" in error
