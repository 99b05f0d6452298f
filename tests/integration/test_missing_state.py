"""A checkpoint that lost a part of its train state is refused before a model is loaded; what never had one trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rla.config.training import TrainConfig  # noqa: E402
from rla.errors import UserError  # noqa: E402
from rla.models.checkpoint import open_checkpoint  # noqa: E402
from rla.models.load import load_model  # noqa: E402
from rla.training.checkpoints import open_to_train, write_checkpoint  # noqa: E402
from rla.training.loop import train  # noqa: E402
from tests.unit.training.builders import random_sequences, tiny_model  # noqa: E402

STATE = ("weights.safetensors", "moments.safetensors", "rng.safetensors", "state.json", "reference.safetensors")


def trained(model: Path, out: Path, *, sequences: int = 4) -> Path:
    settings: dict[str, Any] = {"config": TrainConfig(lr=1e-3, updates=2), "temperature": 0.8, "seed": 7}
    train(model_folder=model, out=out, sequences=random_sequences(sequences), **settings)
    return out


@pytest.fixture
def start(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "start")


def test_a_trained_checkpoint_without_a_file_of_its_state(start: Path, tmp_path: Path) -> None:
    checkpoint = trained(start, tmp_path / "1")
    assert sorted(STATE) == sorted(file.name for file in (checkpoint / "state").iterdir())
    for name in STATE:
        (checkpoint / "state" / name).rename(tmp_path / name)
        for sequences in (4, 0):  # to train on, or to be carried over
            with pytest.raises(UserError, match=f"1/state/{name}: missing|1/state: its weights are missing"):
                trained(checkpoint, tmp_path / "2", sequences=sequences)
        (tmp_path / name).rename(checkpoint / "state" / name)
    assert not (tmp_path / "2").exists()


def test_weights_in_numbered_files_are_there(start: Path, tmp_path: Path) -> None:
    state = trained(start, tmp_path / "1") / "state"
    (state / "weights.safetensors").rename(state / "weights-00000.safetensors")
    assert open_to_train(tmp_path / "1").updates == 2


def test_a_model_that_was_carried_over_has_no_state(start: Path, tmp_path: Path) -> None:
    carried = trained(start, tmp_path / "0", sequences=0)
    assert not (carried / "state").exists()
    assert open_checkpoint(trained(carried, tmp_path / "1")).updates == 2


def test_a_warm_start_is_a_model_alone(start: Path, tmp_path: Path) -> None:
    warm, previous = tmp_path / "0", open_checkpoint(start)
    write_checkpoint(warm, previous=previous, model=load_model(start), dtype="float32", state=None, metrics={})
    assert not (warm / "state").exists()
    assert open_checkpoint(trained(warm, tmp_path / "1")).updates == 2


def test_who_reads_the_model_alone_needs_no_state(start: Path, tmp_path: Path) -> None:
    checkpoint = trained(start, tmp_path / "1")
    (checkpoint / "state/weights.safetensors").unlink()
    assert open_checkpoint(checkpoint).model == checkpoint / "model"
