"""Train state: what is saved is what is restored, to the last bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from rla.config.training import TrainConfig
from rla.errors import UserError
from rla.training.checkpoints import TensorFiles, TrainState, load_state_weights, save_tensors
from rla.training.loop import learning_rate
from rla.training.shared import Backend, Ranks, make_optimizer

CONFIG = TrainConfig(lr=0.01, warmup_steps=4)


def fresh(*, width: int = 3) -> TrainState:
    torch.manual_seed(0)
    model = nn.Linear(width, 2)
    plain = Backend(model, make_optimizer(model, CONFIG), ranks=Ranks())
    return TrainState(model=model, backend=plain, ranks=Ranks())


def advance(state: TrainState, *, steps: int) -> None:
    """Updates on inputs from the global random state, which therefore has to be carried too."""
    for _ in range(steps):
        state.model(torch.randn(4, 3)).square().mean().backward()
        state.backend.step(lr=CONFIG.lr, max_norm=1.0)
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
    save_tensors(trained.model.state_dict().items(), tmp_path, "weights")
    started = fresh()
    started.load(tmp_path)
    assert torch.equal(next(started.model.parameters()), next(trained.model.parameters()))
    assert started.updates == 0
    assert [started.backend.moments(parameter) for parameter in started.model.parameters()] == [{}, {}]


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    save_tensors(fresh(width=5).model.state_dict().items(), tmp_path, "weights")
    with pytest.raises(UserError, match=r"weights\.safetensors: weights of another model"):
        load_state_weights(fresh().model, tmp_path, "weights")


def test_large_tensors_go_to_numbered_files(tmp_path: Path) -> None:
    named = {f"t{number}": torch.full((4,), float(number)) for number in range(5)}
    save_tensors(named.items(), tmp_path, "weights", file_bytes=32)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"weights-{n:05d}.safetensors" for n in range(3)]
    files = TensorFiles(tmp_path, "weights")
    assert {name: files.read(name).tolist() for name in named} == {name: one.tolist() for name, one in named.items()}
    assert files.shapes == dict.fromkeys(named, (4,))


def test_warm_up_is_counted_over_the_run() -> None:
    assert [learning_rate(updates, CONFIG) for updates in (0, 1, 3, 4, 100)] == pytest.approx(
        [0.0025, 0.005, 0.01, 0.01, 0.01]
    )
    assert learning_rate(0, TrainConfig(lr=0.5)) == 0.5
