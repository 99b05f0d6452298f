"""Memory for sharded weights, groups that the ranks must fill, and the precision."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from rla.config.training import TrainConfig
from rla.errors import UserError
from rla.training.shared import Compute, Ranks, Sharing, materialize


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
        Compute.choose(TrainConfig(), ranks, replicas=2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_precision_is_the_parameters_on_every_device(dtype: Literal["float32", "bfloat16"]) -> None:
    assert Compute.choose(TrainConfig(dtype=dtype), Ranks()).mixed == (dtype == "bfloat16")
