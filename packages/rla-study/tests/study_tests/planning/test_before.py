"""Whether a run fits into memory, as `rla run` says it before anything loads."""

from __future__ import annotations

from pathlib import Path

import pytest
from rla_study.planning import before
from rla_study.planning.before import gpu_bytes, host_bytes
from rla_study.planning.memory import ENGINE
from rla_study.planning.plan import Machine, Models, stage_needs
from rla_study.planning.shapes import SHAPES
from rla_study.planning.work import Guesses

from rla.config import Config
from rla.config.load import read_config
from rla.store.layout import resource
from tests.unit.builders import configured

HALF = SHAPES["qwen2.5-0.5b"]
SMALL = Models(policy=HALF, reward=HALF, proposer=HALF)


def foreseen(monkeypatch: pytest.MonkeyPatch, machine: Machine, *overrides: str) -> str:
    monkeypatch.setattr(before, "this_machine", lambda: machine)
    return before.foreseen(configured(*overrides))


def parts(config: Config, machine: Machine) -> dict[str, tuple[float, float, float]]:
    return {one.stage: one.parts for one in stage_needs(config, SMALL, machine, Guesses(), by_task=False)}


def test_every_stage_stands_against_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Machine(gpus=0, host_bytes=64e9)
    text = foreseen(monkeypatch, host, "model.policy=Qwen/Qwen2.5-0.5B-Instruct", "generator.backend=transformers")
    rows = {line.split()[0]: line for line in text.splitlines() if "64 GB of the host" in line}
    assert set(rows) >= {"rollout", "score-steps", "train-policy", "train-rm", "evaluate"}
    assert text.endswith("it fits (`rla plan-memory` adds time and disk)")


def test_what_does_not_fit_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Machine(gpus=1, gpu_bytes=24e9, host_bytes=64e9)
    text = foreseen(monkeypatch, card, "model.policy=Qwen/Qwen2.5-7B-Instruct", "generator.backend=vllm")
    assert "24 GB of a GPU" in text
    assert text.splitlines()[-1].startswith("it may not fit: rollout: weights of 30.5 GB")
    assert "of 1 x 24 GB; lower generator.context, or take" in text


def test_a_model_of_unknown_sizes_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = foreseen(monkeypatch, Machine(gpus=0), "model.policy=some/model")
    assert text.startswith("whether the run fits into memory is not known: model.policy: the sizes of some/model")


def test_parts_by_hand() -> None:
    """494,032,768 weights: 2 bytes each to sample, 16 to train and 2 more of autocast's copy; 12,288 bytes a token."""
    config = configured(
        *("generator.backend=transformers", "generator.dtype=bfloat16", "train_policy.dtype=bfloat16"),
        *("generator.max_sequences=4", "generator.context=1000", "judge.server.model=m"),
        *("judge.server.url=http://localhost:8000/v1", "adaptation.llm.context=500"),
    )
    found = parts(config, Machine(gpus=1, gpu_bytes=24e9))
    assert found["rollout"] == (2 * 494032768, 0.0, 4 * 1000 * 12288)
    assert found["adapt-env"] == (2 * 494032768, 0.0, 4 * 500 * 12288)
    assert found["score-steps"] == (0.0, 0.0, 0.0)
    assert found["train-policy"][0] == 18 * 494032768 and found["train-policy"][1] > 0


def test_vllm_fills_its_share_of_a_gpu() -> None:
    config = configured("generator.backend=vllm", "generator.gpu_memory=0.5", "generator.dtype=bfloat16")
    weights, _, cache = parts(config, Machine(gpus=1, gpu_bytes=24e9))["rollout"]
    assert weights + cache + ENGINE == 0.5 * 24e9
    assert parts(config, Machine(gpus=1, gpu_bytes=1e9))["rollout"][2] == 0


@pytest.mark.parametrize(("pipeline", "rank", "frozen"), [("alfworld-laptop", 16, 4), ("alfworld-24gb", 32, 2)])
def test_a_warm_start_has_a_train_state_and_no_cache(pipeline: str, rank: int, frozen: int) -> None:
    """An adapter over weights of 4 bytes in fp32, of 2 in bf16."""
    models = ("model.policy=qwen2.5-0.5b", "model.reward=qwen2.5-0.5b")
    config = read_config(resource("pipelines") / f"{pipeline}.yaml", models, params_of=None)
    machine = Machine(gpus=int(pipeline == "alfworld-24gb"), gpu_bytes=24e9)
    state, activations, cache = parts(config, machine)["warm-start"]
    assert state == 16 * HALF.adapter_weights(rank) + frozen * HALF.weights
    assert activations > 0 and cache == 0


def test_gpus_are_those_that_the_driver_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\necho "$@" > $(dirname $0)/asked\nprintf "24564\\n24000\\n"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    assert gpu_bytes() == [24564 * 2**20, 24000 * 2**20]
    assert "--id=2,3" in (tmp_path / "asked").read_text()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert gpu_bytes() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    program.write_text("#!/bin/sh\nexit 9\n")
    assert gpu_bytes() == []


def test_a_container_may_have_less_than_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(before, "CGROUP", tmp_path / "memory.max")
    whole = host_bytes()
    for text, expected in (("max\n", whole), ("1000000\n", 1e6), ("99999999999999\n", whole)):
        (tmp_path / "memory.max").write_text(text)
        assert host_bytes() == expected
