"""A checkpoint of which one bit changed is refused by whoever reads that file, before it is used."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rla.config.sections import GeneratorConfig  # noqa: E402
from rla.config.training import LoraConfig, SftConfig, TrainConfig  # noqa: E402
from rla.errors import UserError  # noqa: E402
from rla.llm.factory import make_generator  # noqa: E402
from rla.models.checkpoint import open_checkpoint, verify_model  # noqa: E402
from rla.models.init import adopt, keep_or_make  # noqa: E402
from rla.store.manifest import read_json  # noqa: E402
from rla.training.loop import train  # noqa: E402
from rla.training.sequences import Example  # noqa: E402
from rla.training.sft import sft  # noqa: E402
from tests.unit.training.builders import random_sequences, tiny_model  # noqa: E402

PARTS = ("model", "state", "adapter")


def trained(model: Path, out: Path, *, sequences: int = 4, rank: int = 0, **more: Any) -> Path:
    config = TrainConfig(lr=1e-3, updates=2, lora=LoraConfig(rank=rank))
    train(
        model_folder=model,
        out=out,
        sequences=random_sequences(sequences),
        config=config,
        temperature=0.8,
        seed=7,
        **more,
    )
    return out


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`start`, `1` trained from it, and `adapted`, which is trained with LoRA."""
    folder = tmp_path_factory.mktemp("run")
    trained(tiny_model(folder / "start"), folder / "1")
    trained(folder / "start", folder / "adapted", rank=2)
    return folder


def copied(checkpoint: Path, to: Path) -> Path:
    return Path(shutil.copytree(checkpoint, to))


def flip(path: Path) -> None:
    """One bit in the middle, where the weights of a large file are."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def files(checkpoint: Path) -> list[str]:
    return sorted(str(path.relative_to(checkpoint)) for part in PARTS for path in (checkpoint / part).rglob("*.*"))


def test_every_file_is_recorded(run: Path) -> None:
    for name in ("1", "adapted"):
        assert sorted(read_json(run / name / "files.json")["files"]) == files(run / name)


def test_training_refuses_each_file_that_changed(run: Path, tmp_path: Path) -> None:
    names = files(run / "1")
    assert {"state/moments.safetensors", "state/state.json", "model/generation_config.json"} <= set(names)
    for number, name in enumerate(names):
        damaged = copied(run / "1", tmp_path / str(number))
        flip(damaged / name)
        with pytest.raises(
            UserError, match=rf"{name}: changed since it was written .*call the stage that makes it again"
        ):
            trained(damaged, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_who_reads_the_model_refuses_its_files_alone(run: Path, tmp_path: Path) -> None:
    for number, name in enumerate(files(run / "1")):
        damaged = copied(run / "1", tmp_path / str(number))
        flip(damaged / name)
        if name.startswith("state/"):
            make_generator(GeneratorConfig(context=64), model=damaged / "model", seed=0)
            continue
        with pytest.raises(UserError, match=rf"{name}: changed since it was written"):
            make_generator(GeneratorConfig(context=64), model=damaged / "model", seed=0)


@pytest.mark.parametrize("name", ["adapted/adapter/adapter_model.safetensors", "start/model.safetensors"])
def test_an_adapter_and_its_base_are_the_model(name: str, run: Path, tmp_path: Path) -> None:
    copied(run / "start", tmp_path / "start")
    damaged = copied(run / "adapted", tmp_path / "adapted")
    flip(damaged / "state/moments.safetensors")
    verify_model(damaged / "model")
    flip(tmp_path / name)
    verify_model(damaged / "model", weights=False)
    with pytest.raises(UserError, match=rf"{name}: changed"):
        verify_model(damaged / "model")
    with pytest.raises(UserError, match=rf"{name}: changed"):
        make_generator(GeneratorConfig(context=64), model=damaged / "model", seed=0)


@pytest.mark.parametrize("name", ["state/weights.safetensors", "adapter/adapter_model.safetensors"])
def test_a_file_that_changed_is_not_passed_on(name: str, run: Path, tmp_path: Path) -> None:
    copied(run / "start", tmp_path / "start")
    damaged = copied(run / "adapted", tmp_path / "1")
    assert trained(damaged, tmp_path / "2", sequences=0)
    flip(damaged / name)
    with pytest.raises(UserError, match=rf"/1/{name}: changed .*call the stage that makes it again"):
        trained(damaged, tmp_path / "3", sequences=0)
    assert not (tmp_path / "3").exists()


def test_a_first_model_that_changed_is_not_passed_on(run: Path, tmp_path: Path) -> None:
    """The error names the model that the checkpoint would link, and what makes that again."""
    keep_or_make(
        tmp_path / "init",
        {},
        lambda folder: adopt(str(copied(run / "start", tmp_path / "s")), folder, key="model.policy"),
        overwrite=False,
    )
    flip(tmp_path / "s/model.safetensors")
    with pytest.raises(UserError, match=r"/init/model.safetensors: changed .*`rla init-model --overwrite`"):
        trained(tmp_path / "init", tmp_path / "1", sequences=0)


def test_what_a_warm_start_goes_on_from_is_recorded_anew(run: Path, tmp_path: Path) -> None:
    """Its reference are its own weights, not those of the checkpoint that it read."""
    examples = [Example(token_ids=[5, 6, 7, 8], weights=[0, 1, 1, 1])]
    config = SftConfig(steps=1, batch_size=1, lr=1e-3)
    sft(model_folder=run / "1", out=tmp_path / "rm", rounds=[(examples, config)], seed=1)
    assert open_checkpoint(trained(tmp_path / "rm", tmp_path / "2")).updates == 2


def test_a_record_that_changed_or_is_lost_is_refused(run: Path, tmp_path: Path) -> None:
    damaged = copied(run / "1", tmp_path / "1")
    manifest = damaged / "checkpoint.json"
    manifest.write_text(manifest.read_text().replace('"updates": 2', '"updates": 3'))
    with pytest.raises(UserError, match=r"checkpoint.json: changed since it was written"):
        open_checkpoint(damaged)
    lost = copied(run / "1", tmp_path / "lost")
    (lost / "files.json").unlink()
    with pytest.raises(UserError, match=r"files.json: missing"):
        trained(lost, tmp_path / "2")


def nonsense(path: Path) -> None:
    path.write_text("{")


@pytest.mark.parametrize(
    ("name", "damage", "why"),
    [
        ("moments.safetensors", flip, "changed since"),
        ("stage.json", nonsense, "changed since"),
        ("files.json", nonsense, "not valid JSON"),
        ("moments.safetensors", Path.unlink, "missing"),
    ],
)
def test_a_saved_update_that_changed_is_made_again(
    name: str,
    damage: Callable[[Path], None],
    why: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    logged: list[str],
) -> None:
    monkeypatch.setattr("rla.training.checkpoints.LEAST_SHARE", 0)
    saved, told = tmp_path / "2.partial/update-000001", []

    def killed(_: object) -> None:
        if saved.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(run / "1", tmp_path / "2", save_interval_s=1e-9, log=killed)
    damage(saved / name)
    again = trained(run / "1", tmp_path / "2", log=told.append)
    assert len(told) == 2 and not any("resumed" in one for one in told)
    assert open_checkpoint(again).updates == 4
    assert f"update-000001 cannot be resumed, so its updates are made again: {saved / name}: {why}" in "".join(logged)


def test_the_old_checkpoint_stays_until_the_new_one_is_complete(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = trained(run / "start", tmp_path / "out")
    before = (out / "files.json").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space"):
        patched.setattr("rla.training.checkpoints.write_records", full)
        trained(run / "1", out, replace=True)
    assert (out / "files.json").read_bytes() == before and open_checkpoint(out).updates == 2
    assert open_checkpoint(trained(run / "1", out, replace=True)).updates == 4
    assert not list(tmp_path.glob(".*"))
