"""`examples/rlanything.py`, the method in one file, on a shorter setting than its own."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
import torch

from tests.unit.docs.markdown_pages import TOP

FILE = TOP / "examples/rlanything.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("rlanything", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shorter = module.PARAMS | {
        "tasks": module.PARAMS["tasks"] | {"train_scenes": 3},
        "model": module.PARAMS["model"] | {"hidden_size": 32, "layers": 1},
        "rollout": {"rollouts_per_task": 6},
    }
    monkeypatch.setattr(module, "config", module.from_mapping(shorter, where="test"))
    monkeypatch.setattr(module, "env", module.Alfworld())  # of all edits one is proven for tasks that nobody wins
    monkeypatch.setattr(module, "WARM_START", {"episodes": 8, "updates": 12, "lr": 3e-3, "judged_steps": 60})
    return module


def test_all_three_change(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both models train in every iteration, and what one iteration proposes the next one plays and decides."""
    trained = []
    train = example.train

    def watched(model: torch.nn.Module, optimizer: object, sequences: list, its: object, **options: object) -> None:
        before = [parameter.detach().clone() for parameter in model.parameters()]
        train(model, optimizer, sequences, its, **options)
        changed = any(not torch.equal(one, old) for one, old in zip(model.parameters(), before, strict=True))
        trained.append((bool(sequences), changed))

    monkeypatch.setattr(example, "train", watched)
    threads = torch.get_num_threads()
    try:
        first, second = example.main(2)
    finally:
        torch.set_num_threads(threads)
    assert [wanted for wanted, _ in trained[:2]] == [True, True]  # the warm start
    assert all(wanted == changed for wanted, changed in trained)
    assert trained[2][0]
    assert first["pending"] == 0 < second["pending"]
    assert 0 <= second["accepted"] <= second["pending"]
    assert 0 <= first["success"] <= 1 and 0 <= first["mu"] <= 2


def test_it_can_be_read_in_one_go() -> None:
    assert len(FILE.read_text().splitlines()) <= 250
