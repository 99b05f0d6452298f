"""One iteration on real desktops with a vision-language model of a few ten thousand parameters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from rla.cli.app import run
from screens_tests.machines.places import needs_desktop

pytestmark = [needs_desktop, pytest.mark.slow]
PARAMS = """
seed: 5
env: {name: desktop, max_steps: 5, own: {machines: 2, width: 640, height: 480, still_ms: 600}}
tasks: {kinds: [text], train_scenes: 2, test_scenes: 1, tasks_per_scene: 1}
model:
  {hidden_size: 32, layers: 2, heads: 2, intermediate_size: 48, context: 768,
   architecture: vision, own: {kind: qwen3-vl, hidden_size: 16, layers: 2, heads: 2, patch_size: 8, most_tokens: 64}}
launch: {threads: 1}
generator: {context: 768, max_sequences: 8}
policy: {reply: text, history: window, images: 1, decoding: free, max_tokens: 6, temperature: 1.0}
judge: {prompt: plain, decoding: admissible, max_tokens: 24, temperature: 1.0, votes: 2}
rollout: {tasks_per_iteration: 2, rollouts_per_task: 2, concurrency: 2}
credit: {reward_model_band: [-1, 2], policy_band: [-1, 2]}
train_policy: {lr: 1.0e-3, updates: 1}
train_rm: {lr: 1.0e-3, updates: 1}
adaptation: {enabled: true, alpha_low: 0.2, alpha_high: 0.8, max_tasks: 1, proposals_per_task: 2}
warm_start: {enabled: false}
guards: {stop: []}
evaluation: {rollouts_per_task: 1, max_steps: 5}
"""
STAGES = ("rollout", "score-steps", "validate-tasks", "compute-rewards", "train-policy", "train-rm", "adapt-env")


def rows(folder: str) -> list[dict[str, Any]]:
    return [row for part in sorted(Path("r", folder).glob("part-*")) for row in pq.read_table(part).to_pylist()]


def test_an_iteration_on_real_desktops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    Path("params.yaml").write_text(PARAMS)
    for stage in ("make-tasks", "init-model"):
        assert run([stage, "--run", "r"]) == 0, stage
    for stage in STAGES:
        assert run([stage, "--run", "r", "--iteration", "1"]) == 0, stage
    episodes = rows("1/trajectories")
    assert len(episodes) == 4 and {row["stop_reason"] for row in episodes} <= {"max_steps", "ended", "won"}
    assert all(row["outcome"] == -1 for row in episodes), "nobody wins these by chance"
    assert all(row["image_spans"] for row in episodes)
    judged = rows("1/scores")
    assert len(judged) == sum(len(row["steps"]) for row in episodes)
    assert all(len(row["judgements"]) == 2 for row in judged)
    candidates = rows("1/candidates")
    assert candidates and os.path.isdir("r/1/policy")
    assert any(row["reason"] is None or row["reason"] == "" for row in candidates), candidates
