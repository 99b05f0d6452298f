"""Train state: fp32 master weights, Adam moments, random state and the count of updates of the whole run.

A state folder holds `weights`, `moments` (`.safetensors`; large ones in numbered files), `rng.safetensors` and
`state.json`: named tensors and numbers, no pickles and no paths, so a folder can be moved and read by anything, and
by another number of processes than wrote it. At a learning rate of 1e-6 a bf16 hand-off between iterations would
lose most of each update; these files lose nothing. Of a model with frozen weights (LoRA) they hold what trains.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rla.errors import UserError
from rla.training.optimizing import ADAM_KEYS, Optimizing
from rla.training.ranks import Ranks
from rla.training.tensors import StoredTensor, TensorFiles, save_tensors

if TYPE_CHECKING:
    from rla.config.training import TrainConfig

WEIGHTS, MOMENTS, RNG, COUNTS = "weights", "moments", "rng", "state.json"


@dataclass(slots=True, kw_only=True)
class TrainState:
    """What an update changes. `updates` counts optimizer steps over all iterations, for the learning-rate schedule.

    `save` and `load` are common calls of all ranks; the first one writes.
    """

    model: nn.Module
    optimizing: Optimizing
    ranks: Ranks
    updates: int = 0

    def save(self, folder: Path) -> None:
        self.optimizing.settle()
        named = trainable(self.model)
        weights = ((name, self.optimizing.weight(parameter)) for name, parameter in named.items())
        moments = (
            (f"{key}.{name}", value)
            for name, parameter in named.items()
            for key, value in self.optimizing.moments(parameter).items()
        )
        save_tensors(weights, folder, WEIGHTS, write=self.ranks.first)
        save_tensors(moments, folder, MOMENTS, write=self.ranks.first)
        save_tensors(random_state().items(), folder, RNG, write=self.ranks.first)
        if self.ranks.first:
            (folder / COUNTS).write_text(json.dumps({"updates": self.updates}) + "\n")

    def load(self, folder: Path) -> None:
        """Everything that `save` wrote; a folder with weights alone (a warm start) leaves the optimizer new.

        Raises UserError for a file that cannot be read or belongs to another model.
        """
        self.load_weights(folder, WEIGHTS)
        moments = TensorFiles(folder, MOMENTS)
        if not moments.files:
            return
        for name, parameter in trainable(self.model).items():
            kept = {key: moments.find(f"{key}.{name}") for key in ADAM_KEYS if f"{key}.{name}" in moments}
            if kept:
                self.optimizing.set_moments(parameter, kept)
        random = TensorFiles(folder, RNG, required=True)
        set_random_state({name: random.read(name) for name in random})
        try:
            self.updates = int(json.loads((folder / COUNTS).read_text())["updates"])
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(
                f"{folder / COUNTS}: does not say how many updates were made; make its checkpoint again"
            ) from None

    def load_weights(self, folder: Path, stem: str) -> None:
        """Into the parameters that train. Raises UserError where names or shapes differ."""
        self.optimizing.settle()
        files = TensorFiles(folder, stem, required=True)
        for parameter, value in matching(trainable(self.model), files, frozen=frozen(self.model)):
            self.optimizing.set_weight(parameter, value)

    def fill(self, files: TensorFiles) -> None:
        """Every parameter of the model from files that may hold more, such as a tied weight twice."""
        for name, parameter in self.model.named_parameters():
            self.optimizing.set_weight(parameter, files.find(name))


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def frozen(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that do not train: of an earlier stage that trained them, files may hold them all the same."""
    return {name: parameter for name, parameter in model.named_parameters() if not parameter.requires_grad}


def matching(
    named: Mapping[str, nn.Parameter], files: TensorFiles, *, frozen: Mapping[str, nn.Parameter] | None = None
) -> Iterator[tuple[nn.Parameter, StoredTensor]]:
    """Each parameter and where its values are stored. Raises UserError where names or shapes differ.

    `frozen`: parameters of the same model that the files may hold beside those.
    """
    shapes = files.shapes()
    expected = dict(named) | {name: one for name, one in (frozen or {}).items() if name in shapes}
    if shapes != {name: full_shape(parameter) for name, parameter in expected.items()}:
        raise UserError(
            f"{files.folder / files.stem}.safetensors: weights of another model; "
            "give the checkpoint folder that this state belongs to"
        )
    for name, parameter in named.items():
        yield parameter, files.find(name)


def full_shape(parameter: nn.Parameter) -> tuple[int, ...]:
    """Of a parameter that ZeRO 3 may have emptied."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def load_state_weights(model: nn.Module, folder: Path, stem: str) -> None:
    """Copy all named parameters into a model that this process has whole. Raises UserError as `matching` does."""
    with torch.no_grad():
        files = TensorFiles(folder, stem, required=True)
        for parameter, value in matching(trainable(model), files, frozen=frozen(model)):
            parameter.copy_(value.read())


def save_weights(model: nn.Module, folder: Path, stem: str, *, dtype: torch.dtype | None = None) -> None:
    """All parameters by name (tied ones once), as they are or as `dtype`."""
    named: Iterable[tuple[str, Tensor]] = (
        (name, value.detach().to(dtype or value.dtype)) for name, value in model.named_parameters()
    )
    save_tensors(named, folder, stem)


def learning_rate(updates: int, config: TrainConfig) -> float:
    """Of the update after `updates` of the run: linear warm-up, then as `lr_schedule` says down to `lr_min` of `lr`.

    `linear` and `cosine` end at update `lr_steps` of the run; later updates have the least rate.
    """
    warm = config.rate * min(1.0, (updates + 1) / max(1, config.warmup_steps))
    if config.lr_schedule == "constant" or updates < config.warmup_steps:
        return warm
    done = min(1.0, (updates - config.warmup_steps) / max(1, config.lr_steps - config.warmup_steps))
    left = 1 - done if config.lr_schedule == "linear" else (1 + math.cos(math.pi * done)) / 2
    return config.rate * (config.lr_min + (1 - config.lr_min) * left)


def random_state() -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: dict[str, Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
