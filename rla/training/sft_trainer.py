"""The adapter to TRL: `SFTTrainer` with a weight per token. No other module of the library knows TRL.

`compute_loss` is the override that TRL names for a loss of one's own. `fused_lm_head=True` is a private
argument of the models that `SFTTrainer` prepares: with it they return the log-probabilities of labels[:, 1:],
zero where a label is -100.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel
from transformers.trainer_callback import PrinterCallback
from trl import SFTConfig as TrlConfig
from trl import SFTTrainer

from rla.config.training import SftConfig
from rla.training.branches import forks, preferring_branches

IGNORED = -100
WARMUP_SHARE = 0.05


class WeightedTrainer(SFTTrainer):
    """`steps` holds loss, accuracy (on tokens of full weight) and tokens of every optimizer step."""

    def __init__(self, *, on_step: Callable[[dict[str, Any]], None] | None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.forking: PreTrainedModel = arguments["model"]
        preferring_branches(self.forking)
        self.remove_callback(PrinterCallback)
        self.on_step = on_step
        self.steps: list[dict[str, Any]] = []

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        ids, weights = inputs["input_ids"], inputs["loss_weights"]
        labels = ids.masked_fill(weights == 0, IGNORED)
        found = forks(inputs["branches"], ids.shape[1], device=ids.device)
        # Rows are padded on the right, where causal attention does not look: without a mask it runs faster.
        masked = {} if found is None else {"attention_mask": found.mask(self.forking), "position_ids": found.place}
        outputs = model(input_ids=ids, labels=labels, use_cache=False, fused_lm_head=True, **masked)
        weights = weights[:, 1:]
        loss = -(outputs.log_probs * weights).sum() / weights.sum()
        full = weights == 1
        self._record(loss, accuracy=(outputs.is_top1 * full).sum() / full.sum().clamp(min=1), tokens=ids.numel())
        return cast("Tensor", loss)

    def _record(self, loss: Tensor, *, accuracy: Tensor, tokens: int) -> None:
        step = {
            "step": len(self.steps) + 1,
            "loss": float(loss.detach()),
            "accuracy": float(accuracy),
            "tokens": tokens,
        }
        self.steps.append(step)
        if self.on_step is not None:
            self.on_step(step)


def collate_examples(examples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """(B, L) ids and weights, padded on the right with weight 0, and `branches` of the rows."""
    ids = [torch.tensor(example["input_ids"]) for example in examples]
    weights = [torch.tensor(example["loss_weights"], dtype=torch.float32) for example in examples]
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "loss_weights": pad_sequence(weights, batch_first=True),
        "branches": [example["branches"] for example in examples],
    }


def arguments(folder: str, *, config: SftConfig, seed: int, mixed: bool) -> TrlConfig:
    """A run that writes nothing, reports to nobody and prepares nothing: the examples are tokens already."""
    return TrlConfig(
        output_dir=folder,
        max_steps=config.steps,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.lr,
        lr_scheduler_type="cosine",
        warmup_steps=max(1, round(config.steps * WARMUP_SHARE)),
        adam_beta2=0.99,
        max_grad_norm=1.0,
        seed=seed % 2**32,  # NumPy takes no larger one
        train_sampling_strategy="group_by_length",
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        max_length=None,
        bf16=mixed,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
