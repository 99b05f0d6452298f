"""A short iteration of the params files for a laptop and for one GPU, with SmolLM2 (`make models/smollm2-135m`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rla.cli.app import run
from rla.llm.chat import ChatFormat
from rla.models.load import load_model, load_tokenizer
from rla.store.layout import resource
from rla.store.manifest import read_json

pytestmark = pytest.mark.slow
SMOLLM2 = "models/smollm2-135m"
MODEL = Path(SMOLLM2).absolute()
SHORT = (
    *("env.max_steps=4", "evaluation.max_steps=4", "evaluation.tasks=2", "evaluation.probe_tasks=1"),
    *("tasks.path=null", "tasks.test_splits=[test]", "tasks.size=tiny", "tasks.train_scenes=2", "tasks.test_scenes=2"),
    *(f"model.{name}={MODEL}" for name in ("policy", "reward")),
    *("model.context=1024", "generator.context=1024", "generator.max_sequences=4"),
    *("rollout.tasks_per_iteration=2", "rollout.rollouts_per_task=2", "credit.policy_band=[-1, 2]"),
    *("credit.reward_model_band=[0, 1]", "train_rm.max_samples=4"),
    *(f"{name}.updates=1" for name in ("train_policy", "train_rm")),
    "warm_start.scenes=2",
    *(f"warm_start.{name}.{key}" for name in ("policy", "reward") for key in ("examples=2", "steps=1", "batch_size=2")),
)
STAGES = ("make-tasks", "init-model", "warm-start", "rollout", "score-steps", "validate-tasks", "compute-rewards")


def test_the_carried_model_is_a_language_model() -> None:
    """Its weights, its chat template and its way of splitting text are those of the published model."""
    if not MODEL.is_dir():
        pytest.skip(f"{SMOLLM2} is not there: make {SMOLLM2}")
    import torch

    tokenizer, model = load_tokenizer(MODEL), load_model(MODEL)
    chat = ChatFormat(tokenizer)
    asked = chat.first([{"role": "user", "content": "What is the capital of France?"}])
    said = model.generate(torch.tensor([asked]), max_new_tokens=16, do_sample=False)[0, len(asked) :].tolist()
    assert tokenizer.decode(said) == "The capital of France is Paris.<|im_end|>" and said[-1] in chat.stop_ids
    pieces = [tokenizer.decode(token) for token in tokenizer.encode("mug 12  and 3")]
    assert pieces == ["m", "ug", " ", "1", "2", " ", " and", " ", "3"]


@pytest.mark.parametrize("name", ["alfworld-laptop", "alfworld-24gb"])
def test_an_iteration_turns_and_leaves_one_adapter(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not MODEL.is_dir():
        pytest.skip(f"{SMOLLM2} is not there: make {SMOLLM2}")
    for package in ("peft", *(["vllm"] if name == "alfworld-24gb" else [])):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    params = ["--params", str(resource("pipelines") / f"{name}.yaml"), "--run", "r"]
    options = [word for change in SHORT for word in ("--set", change)]
    for stage in (*STAGES, "train-policy", "train-rm", "adapt-env"):
        assert run([stage, *params, *options]) == 0, stage
    assert run(["evaluate", "--iteration", "1", *params, *options]) == 0
    for model in ("policy", "rm"):
        adapters = [read_json(tmp_path / f"r/{n}/{model}/adapter/adapter_config.json") for n in (0, 1)]
        assert adapters[0]["r"] == adapters[1]["r"] > 0
        assert (tmp_path / f"r/1/{model}/checkpoint.json").is_file()
    assert read_json(tmp_path / "r/eval/1/metrics.json")["episodes"] == 2
