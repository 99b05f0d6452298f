"""Train state: what is saved is what is restored, to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from rla.config.sections import TrainConfig
from rla.errors import UserError
from rla.training.state import TrainState, learning_rate, load_weights, make_optimizer, save_weights

CONFIG = TrainConfig(lr=0.01, warmup_steps=4)


def fresh(*, width: int = 3) -> TrainState:
    torch.manual_seed(0)
    model = nn.Linear(width, 2)
    return TrainState(model=model, optimizer=make_optimizer(model, CONFIG))


def advance(state: TrainState, *, steps: int) -> None:
    """Updates on inputs from the global random state, which therefore has to be carried too."""
    for _ in range(steps):
        state.model(torch.randn(4, 3)).square().mean().backward()
        state.optimizer.step()
        state.optimizer.zero_grad()
        state.updates += 1


def test_going_on_from_a_saved_state_equals_never_having_stopped(tmp_path: Path) -> None:
    straight = fresh()
    advance(straight, steps=2)
    straight.save(tmp_path / "state")
    advance(straight, steps=3)

    resumed = fresh()
    resumed.load(tmp_path / "state")
    assert resumed.updates == 2
    advance(resumed, steps=3)
    for expected, actual in zip(straight.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(expected, actual)


def test_weights_alone_leave_the_optimizer_new(tmp_path: Path) -> None:
    trained = fresh()
    advance(trained, steps=1)
    save_weights(trained.model, tmp_path / "state" / "weights.safetensors")
    started = fresh()
    started.load(tmp_path / "state")
    assert torch.equal(next(started.model.parameters()), next(trained.model.parameters()))
    assert (started.updates, len(started.optimizer.state)) == (0, 0)


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    save_weights(fresh(width=5).model, tmp_path / "weights.safetensors")
    with pytest.raises(UserError, match=r"weights\.safetensors: weights of another model"):
        load_weights(fresh().model, tmp_path / "weights.safetensors")


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    save_weights(fresh().model, file)
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(UserError, match=r"weights\.safetensors: cannot be read"):
        load_weights(fresh().model, file)


def test_warm_up_is_counted_over_the_run() -> None:
    assert [learning_rate(updates, CONFIG) for updates in (0, 1, 3, 4, 100)] == pytest.approx(
        [0.0025, 0.005, 0.01, 0.01, 0.01]
    )
    assert learning_rate(0, TrainConfig(lr=0.5)) == 0.5
