"""`rla init --model`: what is chosen for a model on a machine of some size, and the file that it leads to."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from rla_study.planning import choosing
from rla_study.planning.choosing import recipe_for
from rla_study.planning.plan import Machine
from transformers import GPTNeoXConfig, LlamaConfig, PreTrainedConfig, Qwen3MoeConfig

from rla.cli.app import run
from rla.envs.registry import load_config
from rla.errors import UserError
from tests.unit.training.builders import tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("chat") / "tiny")


def like(model: Path, folder: Path, config: PreTrainedConfig) -> str:
    """A folder with the tokenizer of `model` and another configuration; weights are not read."""
    shutil.copytree(model, folder)
    config.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def smollm2(model: Path, tmp_path: Path) -> str:
    """The sizes of SmolLM2-135M-Instruct."""
    sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9}
    sizes |= {"num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192}
    return like(model, tmp_path / "smollm2", LlamaConfig(**sizes, tie_word_embeddings=True))


def changed(folder: Path | str, memory: float | None) -> dict[str, str]:
    return dict(one.split("=", 1) for one in recipe_for(str(folder), memory).changes)


def test_a_model_that_fits_trains_whole(model: Path) -> None:
    found = changed(model, 24)
    assert (found["train_policy.lora.rank"], found["generator.lora"]) == ("0", "merged")
    assert found["train_policy.lr"] == found["warm_start.policy.lr"] == "null"  # those of the pipeline are of adapters
    assert found["model.policy"] == found["model.reward"] == str(model)
    assert found["model.context"] == found["generator.context"] == "128"  # all that it has
    assert found["train_rm.tokens_per_batch"] == found["warm_start.policy.tokens_per_pass"] == "16384"


def test_little_memory_asks_for_short_passes_or_another_model(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ample = recipe_for(str(model), 24)
    shape = choosing.shape_of_config(choosing.hollow_model(str(model)).config.to_dict(), name="tiny")
    need, _ = choosing.largest_training(ample.pipeline, ample.changes, shape, Machine(gpus=1, gpu_bytes=24e9))
    monkeypatch.setattr(choosing, "TRAINING_SHARE", 0.6 * need / 24e9)
    found = changed(model, 24)
    assert found["train_policy.lora.rank"] == "0" and 1024 <= int(found["train_policy.tokens_per_batch"]) < 16384
    monkeypatch.setattr(choosing, "TRAINING_SHARE", 0.01 * need / 24e9)
    with pytest.raises(UserError, match=r"training takes 0\.\d GB, and 24\.0 GB are there; take a smaller model"):
        recipe_for(str(model), 24)


def test_an_engine_that_does_not_fit_is_told_by_the_plan(model: Path) -> None:
    with pytest.raises(UserError, match=r"--model .*: rollout: weights of .* do not fit into generator\.gpu_memory"):
        recipe_for(str(model), 0.1)


def test_the_host_of_another_machine_is_not_this_one(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "this_machine", lambda: Machine(gpus=0, host_bytes=1e6))
    assert recipe_for(str(model), 24).pipeline == "alfworld-24gb"
    with pytest.raises(UserError, match=r"--model .*: .* of the host's 1 MB"):
        recipe_for(str(model), 0)


@pytest.mark.parametrize("host", [8e9, 16e9])
def test_a_laptop_keeps_adapter_and_context_of_its_pipeline(
    host: float, smollm2: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "this_machine", lambda: Machine(gpus=0, host_bytes=host))
    recipe = recipe_for(smollm2, None)
    assert recipe.pipeline == "alfworld-laptop" and "generator.context=1536" in recipe.changes
    assert not any("lora" in one for one in recipe.changes) and "train_policy.lr=null" in recipe.changes
    assert recipe.reasons[0].startswith("smollm2: 135M weights") and recipe.reasons[1].startswith("LoRA of rank 16:")


def test_too_small_a_laptop_asks_for_a_smaller_model(smollm2: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "this_machine", lambda: Machine(gpus=0, host_bytes=4.5e9))
    with pytest.raises(UserError, match=r"training takes 4\.\d GB, and 4\.5 GB are there; take a smaller model$"):
        recipe_for(smollm2, None)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Qwen3MoeConfig(num_hidden_layers=2), "has num_\\w*experts: 128, and the memory of a mixture of experts"),
        (GPTNeoXConfig(num_hidden_layers=2), "GPTNeoXForCausalLM has .*M weights, and its sizes give .*M: its memory"),
    ],
)
def test_a_model_whose_weights_cannot_be_counted_is_refused(
    config: PreTrainedConfig, message: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        recipe_for(like(model, tmp_path / "other", config), 24)


def test_what_was_chosen_is_said(model: Path) -> None:
    said = " ".join(recipe_for(str(model), 24).reasons)
    assert "all weights train" in said and "context of 128 tokens" in said and "thinks" not in said


def test_without_a_package_that_chooses_the_option_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rla.pipeline.registered", lambda group: {})
    assert run(["init", str(tmp_path / "mine"), "--model", "any/model"]) == 2
    assert "init.model: no installed package does this" in capsys.readouterr().err


def test_a_large_model_reasons_and_has_an_adapter(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "SMALL", 1e3)
    monkeypatch.setattr(choosing, "FULL_SHARE", 0.0)
    found = changed(model, 24)
    assert (found["policy.reply"], found["policy.decoding"], found["judge.prompt"]) == ("index", "free", "published")
    assert "train_rm.lora.rank" not in found  # the adapter of the pipeline
    assert (found["train_rm.lr"], found["warm_start.enabled"], found["model.context"]) == ("null", "false", "128")


def test_a_model_without_a_chat_template_is_refused(model: Path, tmp_path: Path) -> None:
    for file in model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for file in tmp_path.glob("*.jinja"):
        file.unlink()
    with pytest.raises(UserError, match="no chat template"):
        recipe_for(str(tmp_path), 24)


@pytest.mark.parametrize("memory", ["0", "24"])
def test_the_file_can_be_run_and_says_why(
    memory: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", str(tmp_path / "mine"), "--model", str(model), "--memory", memory]) == 0
    said, file = capsys.readouterr().out, tmp_path / "mine/params.yaml"
    reasons = said.splitlines()[:5]
    assert reasons[0].startswith("tiny: ") and all(f"# {one}\n" in file.read_text() for one in reasons)
    config = load_config(file)
    assert (config.model.policy, config.model.reward) == (str(model), str(model))
    assert config.generator.backend == ("vllm" if memory == "24" else "transformers")
    assert config.warm_start.enabled and yaml.safe_load(file.read_text())["name"] == config.name


def test_a_pipeline_of_its_own_beside_a_model_is_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["init", str(tmp_path), "--model", str(model), "--pipeline", "small", "--env", "alfworld"]) == 2
    assert "--model chooses the pipeline" in capsys.readouterr().err
