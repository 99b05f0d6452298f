"""Which rows of a tensor a rank holds, which of a file it reads, and groups that the ranks must fill."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch

from rla.config.sections import LaunchConfig
from rla.config.training import TrainConfig
from rla.errors import UserError
from rla.training.shared import Compute, Ranks, Sharing, chunk_bounds, materialize
from rla.training.state import TensorFiles, save_tensors


@pytest.mark.parametrize("size", [1, 2, 7, 8, 127])
@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_the_rows_of_a_rank_are_those_of_torch_chunk(size: int, count: int) -> None:
    rows = torch.arange(size)
    expected = [part.tolist() for part in rows.chunk(count)]
    found = [rows[slice(*chunk_bounds(size, count, number))].tolist() for number in range(count)]
    assert found == expected + [[]] * (count - len(expected))


def test_a_part_of_a_stored_tensor(tmp_path: Path) -> None:
    save_tensors([("a", torch.arange(12).view(6, 2)), ("b", torch.tensor(3.0))], tmp_path, "weights")
    files = TensorFiles(tmp_path, "weights")
    assert files["a"].rows(1, 3).tolist() == [[2, 3], [4, 5]]
    assert files["a"].rows(6, 6).shape == (0, 2)
    assert files["b"].read().item() == 3.0


def test_tied_parameters_stay_one_when_they_get_memory() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False, device="meta"), torch.nn.Linear(2, 2, bias=False))
    model.append(torch.nn.Linear(2, 2, bias=False, device="meta"))
    model[2].weight = model[0].weight
    kept = model[1].weight
    materialize(model, torch.device("cpu"))
    assert model[2].weight is model[0].weight and not model[0].weight.is_meta
    assert model[1].weight is kept


@pytest.mark.parametrize("ranks", [Ranks(), Ranks(world=3, sharing=Sharing.FSDP), Ranks(world=4)])
def test_groups_need_fsdp_and_ranks_that_fill_them(ranks: Ranks) -> None:
    with pytest.raises(UserError, match=r"launch\.replicas is 2, with \d processes"):
        Compute.choose(TrainConfig(), ranks, LaunchConfig(replicas=2))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_precision_is_the_parameters_on_every_device(dtype: Literal["float32", "bfloat16"]) -> None:
    assert Compute.choose(TrainConfig(dtype=dtype), Ranks()).mixed == (dtype == "bfloat16")
