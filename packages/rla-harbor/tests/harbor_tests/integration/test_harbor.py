"""Harbor's tasks through the stages: the pool of a folder, episodes, judging and credit with a scripted policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harbor_tests.builders import TASKS, needs_sandbox, solution_of
from rla.llm.base import Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import ScriptedGenerator
from rla.models.load import load_tokenizer
from rla.store.reading import read_rows
from tests.integration.conftest import Rla, stages

PARAMS = """
seed: 3
env: {name: harbor, max_steps: 3, own: {held_out: 0.3}}
model: {hidden_size: 32, layers: 1, heads: 2, intermediate_size: 32, context: 8192}
launch: {threads: 1}
generator: {backend: scripted, context: 8192}
policy: {reply: tagged, history: full, decoding: free, max_tokens: 1024, temperature: 1.0}
judge: {prompt: published, decoding: free, votes: 2, max_tokens: 32, temperature: 1.0}
rollout: {tasks_per_iteration: 2, rollouts_per_task: 4}
train_policy: {lr: 1.0e-3, updates: 1}
train_rm: {lr: 1.0e-3, updates: 1}
adaptation: {enabled: false}
warm_start: {enabled: false}
"""


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy solves its task with an even seed, and gives up otherwise; the judge likes solutions."""
    scripts = {read.split("`")[1]: solution_of(name) for name, read in INSTRUCTIONS.items()}

    def made(config: Any, *, model: Path, seed: int, training: bool = True) -> Any:
        tokenizer = load_tokenizer(model)
        chat = ChatFormat(tokenizer)

        def reply(request: Request, seed: int) -> list[int]:
            asked = chat.decode(request.prompt_ids)
            if "You judge one step" in asked:
                said = "\\boxed{-1}" if "<action>true" in asked else "\\boxed{1}"
            elif "<action>" in asked.rpartition("The action `done` ends the task.")[2]:
                said = "<action>done</action>"
            elif seed % 2:
                said = "<action>true</action>"
            else:
                script = next(text for mark, text in scripts.items() if mark in asked)
                said = f"<action>{script}</action>"
            return [*chat.encode(said), chat.end_id]

        return ScriptedGenerator(reply, context=config.context), tokenizer

    monkeypatch.setattr("rla.llm.factory.make_generator", made)


INSTRUCTIONS = {
    name: (TASKS / name / "instruction.md").read_text() for name in ("fix-report", "recover-token", "merge-inventory")
}


def test_a_folder_is_played_judged_and_credited(rla: Rla, tmp_path: Path, scripted: None) -> None:
    needs_sandbox()
    (tmp_path / "params.yaml").write_text(PARAMS)
    code, out, error = rla("make-tasks", "--run", "r", "--from", str(TASKS))
    assert code == 0, error
    assert "build-with-apt is left out: its Dockerfile has RUN with apt-get" in out + error
    stages(rla, "init-model", "rollout", "score-steps", "validate-tasks", "compute-rewards")
    rows = read_rows(tmp_path / "r/1/trajectories", "trajectories")
    assert len(rows) == 8 and {row["stop_reason"] for row in rows} == {"won", "ended"}
    for row in rows:
        solved = row["steps"][0]["action"] != "true"
        assert (row["outcome"], row["reward"]) == ((1, 1.0) if solved else (-1, 0.0))
        assert row["steps"][-1]["action"] == "done"
    scores = read_rows(tmp_path / "r/1/scores", "scores")
    assert {vote["score"] for row in scores for vote in row["judgements"]} == {1, -1}
    rewards = read_rows(tmp_path / "r/1/rewards/policy", "policy_rewards")
    advantages = {row["trajectory_id"]: row["advantage"] for row in rewards if row["step"] == 0}
    won = {row["trajectory_id"] for row in rows if row["outcome"] == 1}
    assert won and all((advantages[name] > 0) == (name in won) for name in advantages)
