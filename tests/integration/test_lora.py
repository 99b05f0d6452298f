"""Training an adapter: what is frozen, what is stored, what the export is, and what cannot follow what."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from safetensors.torch import load_file  # noqa: E402

from rla.config.training import LoraConfig, SftConfig, TrainConfig  # noqa: E402
from rla.errors import UserError  # noqa: E402
from rla.models.checkpoint import base_of, verify_model  # noqa: E402
from rla.models.init import adopt  # noqa: E402
from rla.models.load import load_model, load_tokenizer, write_merged  # noqa: E402
from rla.training.loop import train  # noqa: E402
from tests.unit.training.builders import random_sequences, tiny_model  # noqa: E402

FULL = TrainConfig(lr=1e-2, updates=3, kl_coef=0.1, tokens_per_batch=64)
LORA = replace(FULL, lora=LoraConfig(rank=2, alpha=4.0))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("start") / "tiny")


def run(model: Path, out: Path, *, config: TrainConfig = LORA, **options: Any) -> dict[str, Any]:
    sequences = random_sequences(9)
    return train(model_folder=model, out=out, sequences=sequences, config=config, temperature=0.8, seed=7, **options)


def logits(model: Any) -> Any:
    with torch.no_grad():
        return model(torch.arange(20)[None]).logits


def test_the_export_is_the_base_with_the_stored_adapter(start: Path, tmp_path: Path) -> None:
    history: list[dict[str, Any]] = []
    run(start, tmp_path / "1", log=history.append)
    second = run(tmp_path / "1", tmp_path / "2", log=history.append)
    assert second["total_updates"] == 6
    assert history[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert history[3]["kl"] > 1e-5  # still measured to the run's first weights

    loaded = peft.PeftModel.from_pretrained(load_model(start), tmp_path / "2" / "adapter").eval()
    torch.testing.assert_close(logits(load_model(tmp_path / "2/model")), logits(loaded), atol=1e-5, rtol=1e-5)
    assert (logits(loaded) - logits(load_model(start))).abs().max() > 1e-3
    found, merged = load_model(tmp_path / "2/model").state_dict(), loaded.merge_and_unload().state_dict()
    assert all(torch.equal(value, merged[name]) for name, value in found.items())


def test_a_checkpoint_holds_the_adapter_and_its_state_alone(start: Path, tmp_path: Path) -> None:
    run(start, tmp_path / "1")
    run(tmp_path / "1", tmp_path / "2")
    weights = load_file(tmp_path / "2" / "state" / "weights.safetensors")
    assert len(weights) == 2 * 7 * 2  # A and B of seven linear layers in two blocks
    assert all("lora_" in name for name in weights)
    tensors = sorted(str(path.relative_to(tmp_path / "2")) for path in (tmp_path / "2").rglob("*.safetensors"))
    assert tensors == [
        "adapter/adapter_model.safetensors",
        "state/moments.safetensors",
        "state/rng.safetensors",
        "state/weights.safetensors",
    ]
    place = os.path.relpath(start, tmp_path / "2/model")
    assert json.loads((tmp_path / "2/model/base.json").read_text())["base"] == place


def test_a_run_can_be_moved_and_its_base_is_needed(start: Path, tmp_path: Path) -> None:
    before = tmp_path / "r"
    shutil.copytree(start, before / "0/policy/model")
    run(before / "0/policy/model", before / "1/policy")
    expected = logits(load_model(before / "1/policy/model"))
    after = before.rename(tmp_path / "moved")
    assert torch.equal(logits(load_model(after / "1/policy/model")), expected)
    run(after / "1/policy", after / "2/policy")

    weights = after / "0/policy/model/model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[-1] ^= 1
    weights.write_bytes(damaged)
    changed = r"0/policy/model/model\.safetensors: changed .* holds an adapter over it"
    with pytest.raises(UserError, match=changed):
        verify_model(after / "1/policy/model")
    with pytest.raises(UserError, match=changed):
        run(after / "2/policy", after / "3/policy")
    weights.unlink()
    for read in (load_model, verify_model):
        with pytest.raises(UserError, match=r"0/policy/model/model\.safetensors: missing.* holds an adapter over it"):
            read(after / "2/policy/model")


def test_both_as_one_folder(start: Path, tmp_path: Path) -> None:
    run(start, tmp_path / "1")
    (tmp_path / "whole").mkdir()
    write_merged(tmp_path / "1/model", tmp_path / "whole", dtype="float32")
    assert torch.equal(logits(load_model(tmp_path / "whole")), logits(load_model(tmp_path / "1/model")))
    assert load_tokenizer(tmp_path / "whole").chat_template and not (tmp_path / "whole/base.json").exists()
    run(tmp_path / "whole", tmp_path / "2")

    with pytest.raises(UserError, match=r"no adapter can lie over it; write both as one with `rla merge .*/1 FOLDER`"):
        run(tmp_path / "1/model", tmp_path / "3")


def test_what_a_run_has_made_starts_another_run(start: Path, tmp_path: Path) -> None:
    run(start, tmp_path / "1")
    (tmp_path / "init").mkdir()
    adopt(str(tmp_path / "1/model"), tmp_path / "init", key="model.policy")
    train(model_folder=tmp_path / "1/model", out=tmp_path / "0", sequences=[], config=FULL, temperature=0.8, seed=7)
    expected = logits(load_model(tmp_path / "1/model"))
    for model in (tmp_path / "init", tmp_path / "0/model"):
        assert torch.equal(logits(load_model(model)), expected)
    run(tmp_path / "0", tmp_path / "2")


def test_a_killed_stage_goes_on_to_the_same_bits(start: Path, tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def kill(metrics: dict[str, Any]) -> None:
        if metrics["update"] == 3:
            raise Killed

    run(start, tmp_path / "straight")
    with pytest.raises(Killed):
        run(start, tmp_path / "killed", log=kill, save_interval_s=0.0)
    seen: list[dict[str, Any]] = []
    run(start, tmp_path / "killed", log=seen.append)
    assert [one["update"] for one in seen if "resumed" not in one] == [3]
    for file in sorted(path.relative_to(tmp_path / "straight") for path in (tmp_path / "straight").rglob("*.safe*")):
        one, two = load_file(tmp_path / "straight" / file), load_file(tmp_path / "killed" / file)
        assert [name for name in one if not torch.equal(one[name], two[name])] == []


@pytest.mark.parametrize(("first", "then", "kind"), [(FULL, LORA, "all weights"), (LORA, FULL, "an adapter")])
def test_a_run_does_not_change_from_one_kind_to_the_other(
    first: TrainConfig, then: TrainConfig, kind: str, start: Path, tmp_path: Path
) -> None:
    run(start, tmp_path / "1", config=first)
    with pytest.raises(UserError, match=rf"1: the run has trained {kind}; set lora\.rank as before"):
        run(tmp_path / "1", tmp_path / "2", config=then)
    run(tmp_path / "1" / "model", tmp_path / "2", config=then)


def test_recomputing_activations_changes_nothing(start: Path, tmp_path: Path) -> None:
    for name, checkpointing in (("plain", False), ("recomputed", True)):
        run(start, tmp_path / name, config=replace(LORA, gradient_checkpointing=checkpointing))
    one, two = (load_file(tmp_path / name / "state" / "weights.safetensors") for name in ("plain", "recomputed"))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-6, rtol=1e-5)
        assert value.abs().sum() > 0  # B starts at zero: it got a gradient


def test_another_rank_is_refused(start: Path, tmp_path: Path) -> None:
    run(start, tmp_path / "1")
    with pytest.raises(UserError, match=r"weights\.safetensors: weights of another model"):
        run(tmp_path / "1", tmp_path / "2", config=replace(LORA, lora=LoraConfig(rank=4)))


def test_without_signal_the_adapter_is_carried_over(start: Path, tmp_path: Path) -> None:
    run(start, tmp_path / "1")
    train(model_folder=tmp_path / "1", out=tmp_path / "2", sequences=[], config=LORA, temperature=0.8, seed=7)
    run(tmp_path / "2", tmp_path / "3")
    run(tmp_path / "1", tmp_path / "4")
    one, two = (load_file(tmp_path / name / "state" / "weights.safetensors") for name in ("3", "4"))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_warm_start_is_the_base(start: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the warm start needs TRL")
    from rla.training.sequences import Example
    from rla.training.sft import sft

    examples = [Example(token_ids=list(range(n, n + 12)), weights=[1.0] * 12) for n in range(10, 60)]
    sft(model_folder=start, out=tmp_path / "0", rounds=[(examples, SftConfig(steps=20, lr=1e-2))], seed=0)
    run(tmp_path / "0", tmp_path / "1", config=replace(LORA, lr=0.0))
    one, two = (load_model(tmp_path / name / "model") for name in "01")
    torch.testing.assert_close(logits(two), logits(one), atol=1e-6, rtol=0)
    assert (logits(one) - logits(load_model(start))).abs().max() > 0.1


def test_a_warm_start_teaches_the_adapter_that_the_loop_goes_on_with(start: Path, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="the warm start needs TRL")
    from rla.training.sequences import Example
    from rla.training.sft import sft

    examples = [Example(token_ids=list(range(n, n + 12)), weights=[1.0] * 12) for n in range(10, 60)]
    taught: dict[str, Any] = {"rounds": [(examples, SftConfig(steps=20, lr=1e-2))], "seed": 0}
    metrics = sft(model_folder=start, out=tmp_path / "0", lora=LORA, **taught)
    assert metrics["last_loss"] < metrics["first_loss"] - 0.1
    again = sft(model_folder=tmp_path / "0", out=tmp_path / "judge", lora=LORA, **taught)
    assert again["first_loss"] < metrics["first_loss"] - 0.1  # goes on with the same adapter

    assert run(tmp_path / "0", tmp_path / "1", config=replace(LORA, lr=0.0, kl_coef=0.0))["total_updates"] == 3
    one, two = (load_model(tmp_path / name / "model") for name in "01")
    torch.testing.assert_close(logits(two), logits(one), atol=1e-6, rtol=0)
    base = load_model(start)
    loaded = peft.PeftModel.from_pretrained(load_model(start), tmp_path / "0" / "adapter").eval()
    torch.testing.assert_close(logits(one), logits(loaded), atol=1e-5, rtol=1e-5)
    assert (logits(one) - logits(base)).abs().max() > 1e-2
    for name in ("0", "1", "judge"):  # all are adapters over the model that the run began with
        base = base_of(tmp_path / name / "model")
        assert base is not None and base.folder == start.resolve()


def test_bfloat16_keeps_one_base_in_every_iteration(start: Path, tmp_path: Path) -> None:
    """The base is rounded to the precision of the export at once, so a later iteration starts from the same one."""
    config = replace(LORA, dtype="bfloat16", updates=1, lr=0.0)
    history: list[dict[str, Any]] = []
    for number, source in enumerate([start, tmp_path / "1"], start=1):
        run(source, tmp_path / str(number), config=config, log=history.append)
    assert history[0]["sampler_gap"] == history[1]["sampler_gap"]
