"""Train state: fp32 master weights, Adam moments, random state and the count of updates of the whole run.

A state folder holds `weights.safetensors`, `moments.safetensors`, `rng.safetensors` and `state.json`: named
tensors and numbers, no pickles and no paths, so a folder can be moved and read by anything. At a learning
rate of 1e-6 a bf16 hand-off between iterations would lose most of each update; these files lose nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rla.errors import UserError

if TYPE_CHECKING:
    from rla.config.sections import TrainConfig

WEIGHTS, MOMENTS, RNG, COUNTS = "weights.safetensors", "moments.safetensors", "rng.safetensors", "state.json"
ADAM_KEYS = ("step", "exp_avg", "exp_avg_sq")


@dataclass(slots=True, kw_only=True)
class TrainState:
    """What an update changes. `updates` counts optimizer steps over all iterations, for the learning-rate
    warm-up.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    updates: int = 0

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        save_weights(self.model, folder / WEIGHTS)
        moments = {
            f"{key}.{name}": value.detach().cpu().contiguous()
            for name, parameter in self.model.named_parameters()
            for key, value in self.optimizer.state.get(parameter, {}).items()
        }
        save_file(moments, folder / MOMENTS)
        save_file(_random_state(), folder / RNG)
        (folder / COUNTS).write_text(json.dumps({"updates": self.updates}) + "\n")

    def load(self, folder: Path) -> None:
        """Everything that `save` wrote; a folder with weights alone (a warm start) leaves the optimizer new.

        Raises UserError for a file that cannot be read or belongs to another model.
        """
        load_weights(self.model, folder / WEIGHTS)
        if not (folder / MOMENTS).is_file():
            return
        moments = _read(folder / MOMENTS)
        for name, parameter in self.model.named_parameters():
            kept = {key: moments[f"{key}.{name}"] for key in ADAM_KEYS if f"{key}.{name}" in moments}
            if kept:
                self.optimizer.state[parameter] = {
                    key: value if key == "step" else value.to(parameter.device) for key, value in kept.items()
                }
        _set_random_state(_read(folder / RNG))
        self.updates = int(json.loads((folder / COUNTS).read_text())["updates"])


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        parameters, lr=config.lr, betas=(config.beta1, config.beta2), weight_decay=config.weight_decay
    )


def learning_rate(updates: int, config: TrainConfig) -> float:
    """Of the update after `updates` of the run: linear warm-up, then constant."""
    return config.lr * min(1.0, (updates + 1) / max(1, config.warmup_steps))


def save_weights(model: nn.Module, file: Path, *, dtype: torch.dtype | None = None) -> None:
    """The parameters by name (tied ones once), as they are or as `dtype`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    named = {name: value.detach().to(dtype or value.dtype) for name, value in model.named_parameters()}
    save_file({name: value.cpu().contiguous() for name, value in named.items()}, file)


def load_weights(model: nn.Module, file: Path) -> None:
    """Copy the named parameters into the model. Raises UserError where names or shapes differ."""
    stored = _read(file)
    named = dict(model.named_parameters())
    shapes = {name: tuple(value.shape) for name, value in stored.items()}
    if shapes != {name: tuple(value.shape) for name, value in named.items()}:
        raise UserError(f"{file}: weights of another model; give the checkpoint folder that this state belongs to")
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(stored[name])


def _read(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise UserError(f"{file}: missing; the train state is incomplete, take an earlier checkpoint")
    try:
        return load_file(file)
    except SafetensorError as error:
        raise UserError(f"{file}: cannot be read ({error}); take an earlier checkpoint") from error


def _random_state() -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _set_random_state(state: dict[str, Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
