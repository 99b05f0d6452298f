"""A model that can play already is not spoilt by the default rates: of a warm start, of the loop, of adapters."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.cli.app import run
from rla.store.manifest import read_json

pytestmark = pytest.mark.slow

SIZES = """
seed: 5
env: {name: alfworld, max_steps: 15, omit_commands: [look, inventory, help, examine]}
tasks: {size: tiny, train_scenes: 8, test_scenes: 64, tasks_per_scene: 2}
model: {hidden_size: 96, layers: 2, context: 768}
launch: {threads: 1}
generator: {context: 768, max_sequences: 64}
policy: {repeat_task: true, decoding: admissible, temperature: 1.0, max_tokens: 12}
judge: {decoding: admissible, votes: 2, temperature: 1.0, max_tokens: 6}
rollout: {tasks_per_iteration: 16, rollouts_per_task: 8}
evaluation: {rollouts_per_task: 2, temperature: 1.0, max_steps: 15}
adaptation: {enabled: false}
"""
TAUGHT = ("warm_start.scenes=1500", "warm_start.policy.examples=2400", "warm_start.policy.steps=300")
JUDGE = ("warm_start.reward.examples=32", "warm_start.reward.steps=4")  # nothing here asks how good it is
NOISE = 0.07  # of two evaluations of 256 episodes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained")
    (folder / "params.yaml").write_text(SIZES)
    call(folder, "warm-start", "scratch", *TAUGHT, *JUDGE)
    return folder


def call(folder: Path, stage: str, name: str, *changes: str, iteration: int = 1) -> None:
    options = [word for change in changes for word in ("--set", change)]
    place = ["--run", str(folder / name), "--params", str(folder / "params.yaml")]
    number = ["--iteration", str(iteration)] if stage != "warm-start" else []
    assert run([stage, *place, *number, *options]) == 0


def success(folder: Path, name: str, iteration: int = 0) -> float:
    call(folder, "evaluate", name, iteration=iteration)
    return float(read_json(folder / name / f"eval/{iteration}/metrics.json")["success"])


def pretrained(folder: Path) -> tuple[str, str]:
    """The overrides by which a run starts from the model that was taught from scratch."""
    made = folder / "scratch/0"
    return f"model.policy={made / 'policy/model'}", f"model.reward={made / 'rm/model'}"


@pytest.mark.parametrize("rank", [0, 8])
def test_a_warm_start_of_default_rate_leaves_it_as_good(rank: int, folder: Path) -> None:
    if rank:
        pytest.importorskip("peft", reason="needs the extra lora")
    before, name = success(folder, "scratch"), f"taught-{rank}"
    assert before > 0.15
    reference = "train_policy.kl_reference=previous"  # the warm start moves the adapter away from the base
    changes = (*pretrained(folder), f"train_policy.lora.rank={rank}", "warm_start.enabled=true", reference)
    call(folder, "warm-start", name, *changes, *JUDGE)
    assert (folder / name / "0/policy/adapter").is_dir() == bool(rank)
    assert success(folder, name) > before - NOISE


@pytest.mark.parametrize("rank", [0, 8])
def test_an_iteration_of_default_rate_leaves_it_as_good(rank: int, folder: Path) -> None:
    if rank:
        pytest.importorskip("peft", reason="needs the extra lora")
    before, name = success(folder, "scratch"), f"loop-{rank}"
    changes = (*pretrained(folder), f"train_policy.lora.rank={rank}")
    for stage in ("warm-start", "rollout", "score-steps", "validate-tasks", "compute-rewards", "train-policy"):
        call(folder, stage, name, *changes)
    assert read_json(folder / name / "0/policy/metrics.json")["examples"] == 0  # no warm start unless asked for
    assert success(folder, name, iteration=1) > before - NOISE
