"""The adapter to TRL: `SFTTrainer` with a weight per token. No other module of the core knows TRL.

`compute_loss` is the override that TRL names for a loss of one's own. `fused_lm_head=True` is a private
argument of the models that `SFTTrainer` prepares: with it they return the log-probabilities of labels[:, 1:],
zero where a label is -100.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.trainer_callback import PrinterCallback, TrainerCallback
from trl import SFTConfig as TrlConfig
from trl import SFTTrainer

from rla.config.training import SftConfig
from rla.store.records import ImageSpan
from rla.training.batching import Eyes, SeenText
from rla.training.logprobs import CHUNK_LOGITS, looking_states
from rla.training.packing import forks, pack, prefer, preferring_branches
from rla.training.resume import HeldInterrupts

IGNORED = -100
SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


class WeightedTrainer(SFTTrainer):
    """`steps` holds loss, accuracy (on tokens of full weight) and tokens of every optimizer step.

    A batch is a list of passes (`Collator`). Their losses share the sum of weights of the whole batch, so that an
    update is the same however it is divided.
    """

    def __init__(self, *, on_step: Callable[[dict[str, Any]], None] | None, packing: bool, **arguments: Any) -> None:
        model: PreTrainedModel = arguments["model"]
        packs = packing and prefer(model)
        tokens = arguments.pop("tokens_per_pass")
        self.eyes: Eyes | None = arguments.pop("eyes", None)
        interrupts = arguments.pop("interrupts", None)
        super().__init__(data_collator=Collator(packs=packs, tokens_per_pass=tokens), **arguments)
        self.forking = model
        preferring_branches(self.forking)
        self.remove_callback(PrinterCallback)
        if interrupts is not None:
            self.add_callback(SaveWhenInterrupted(interrupts))
        self.on_step = on_step
        self.steps: list[dict[str, Any]] = []
        self._counts: list[Tensor] = []  # of each pass of an update: right tokens, tokens of full weight

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        passes = inputs["passes"]
        self._counts = []
        losses = [super(WeightedTrainer, self).training_step(model, one, num_items_in_batch) for one in passes]
        loss = torch.stack(losses).sum()
        right, full = torch.stack(self._counts).sum(0)
        self._record(loss, accuracy=right / full.clamp(min=1), tokens=sum(one["input_ids"].numel() for one in passes))
        return loss

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        ids, weights = inputs["input_ids"], inputs["loss_weights"]
        if self.eyes is not None:
            return self._looking_loss(self.eyes, inputs)
        labels = ids.masked_fill(weights == 0, IGNORED)
        outputs = model(input_ids=ids, labels=labels, use_cache=False, fused_lm_head=True, **self._seen(inputs, ids))
        weights = weights[:, 1:]
        full = weights == 1
        self._counts.append(torch.stack([(outputs.is_top1 * full).sum(), full.sum()]))
        loss = -(outputs.log_probs * weights).sum() / inputs["total"]
        return cast("Tensor", loss)

    def _looking_loss(self, eyes: Eyes, inputs: dict[str, Any]) -> Tensor:
        """The loss of a vision-language model."""
        ids, weights = inputs["input_ids"], inputs["loss_weights"]
        seen = self._seen(inputs, ids)
        seen.pop("position_ids", None)
        texts = [
            SeenText(length=length, images=[ImageSpan(**one) for one in shown], branches=branches)
            for length, shown, branches in zip(inputs["sizes"], inputs["shown"], inputs["branches"], strict=True)
        ]
        looks = eyes.looks(texts, packed=inputs["lengths"] is not None, device=ids.device)
        hidden = looking_states(self.forking, ids, looks, **seen)
        counted = weights[:, 1:] != 0
        log_probs, is_top1 = next_log_probs(self.forking, hidden, ids, counted=counted, banned=eyes.vision.banned)
        full = weights[:, 1:] == 1
        self._counts.append(torch.stack([(is_top1 * full).sum(), full.sum()]))
        return cast("Tensor", -(log_probs * weights[:, 1:]).sum() / inputs["total"])

    def _seen(self, inputs: dict[str, Any], ids: Tensor) -> dict[str, Any]:
        """What says which tokens see which. Rows are padded on the right, where causal attention does not look: without
        a mask it runs faster.
        """
        if inputs["lengths"] is not None:
            packing = pack(inputs["lengths"], inputs["branches"], device=ids.device)
            return {"packing": packing, "position_ids": packing.places}
        found = forks(inputs["branches"], ids.shape[1], device=ids.device)
        return {} if found is None else {"attention_mask": found.mask(self.forking), "position_ids": found.place}

    def _record(self, loss: Tensor, *, accuracy: Tensor, tokens: int) -> None:
        step = {"step": len(self.steps) + 1, "loss": float(loss), "accuracy": float(accuracy), "tokens": tokens}
        self.steps.append(step)
        if self.on_step is not None:
            self.on_step(step)


class SaveWhenInterrupted(TrainerCallback):
    """Ends the training with a checkpoint after the step in which Ctrl-C was pressed."""

    def __init__(self, interrupts: HeldInterrupts) -> None:
        self.interrupts = interrupts

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.interrupts.asked:
            control.should_save = control.should_training_stop = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Collator:
    """The examples of an update as passes of at most `tokens_per_pass` tokens each, or of one text that is longer.

    `packs`: examples follow each other in one row, in place of rows that are padded.
    """

    packs: bool
    tokens_per_pass: int

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        cut = [piece for example in examples for piece in pieces(example, most=self.tokens_per_pass)]
        passes = [self._collate(group) for group in self._groups(cut)]
        total = sum(one["loss_weights"][:, 1:].sum() for one in passes)
        return {"passes": [one | {"total": total} for one in passes]}

    def _groups(self, examples: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
        groups: list[list[dict[str, Any]]] = [[]]
        for example in examples:
            sizes = [len(one["input_ids"]) for one in (*groups[-1], example)]
            tokens = sum(sizes) if self.packs else len(sizes) * max(sizes)
            if groups[-1] and tokens > self.tokens_per_pass:
                groups.append([])
            groups[-1].append(example)
        return groups

    def _collate(self, examples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """(B, L) ids and weights, padded on the right with weight 0, or packed (1, T), where no token predicts the
        first one of the next example. `branches`, `sizes` and `shown` pictures are by example; `lengths`: if packed.
        """
        ids = [torch.tensor(one["input_ids"]) for one in examples]
        weights = [torch.tensor(one["loss_weights"], dtype=torch.float32) for one in examples]
        sizes = [len(one) for one in ids]
        if self.packs:
            for one in weights:
                one[0] = 0.0
        return {
            "input_ids": torch.cat(ids)[None] if self.packs else pad_sequence(ids, batch_first=True),
            "loss_weights": torch.cat(weights)[None] if self.packs else pad_sequence(weights, batch_first=True),
            "branches": [one["branches"] for one in examples],
            "lengths": sizes if self.packs else None,
            "sizes": sizes,
            "shown": [one.get("shown", []) for one in examples],
        }


def pieces(example: dict[str, Any], *, most: int) -> list[dict[str, Any]]:
    """An example of more than `most` tokens as several, each with some of its branches and what these continue; one
    branch at least. Branches do not see each other, so the losses are those of the whole example.
    """
    branches, weights = example["branches"], example["loss_weights"]
    if len(weights) <= most or not branches or any(weights[: min(start for start, _, _ in branches)]):
        return [example]
    groups: list[list[list[int]]] = []
    for branch in branches:
        together = [*groups[-1], branch] if groups else []
        if together and max(at for _, _, at in together) + sum(end - start for start, end, _ in together) <= most:
            groups[-1] = together
        else:
            groups.append([branch])
    return [_with_branches(example, group) for group in groups]


def _with_branches(example: dict[str, Any], branches: Sequence[Sequence[int]]) -> dict[str, Any]:
    reach, shown = max(anchor for _, _, anchor in branches), example.get("shown", [])
    ids, weights, kept = list(example["input_ids"][:reach]), [0.0] * reach, []
    images = [one for one in shown if one["start"] + one["length"] <= reach]
    for start, end, anchor in branches:
        moved = len(ids) - start
        images += [one | {"start": one["start"] + moved} for one in shown if start <= one["start"] < end]
        kept.append([len(ids), len(ids) + end - start, anchor])
        ids += example["input_ids"][start:end]
        weights += example["loss_weights"][start:end]
    return {"input_ids": ids, "loss_weights": weights, "branches": kept, "shown": images}


def next_log_probs(
    model: PreTrainedModel, hidden: Tensor, ids: Tensor, *, counted: Tensor, banned: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """(B, L - 1) log-probabilities of the tokens that follow, and whether each is the likeliest; zero where not
    `counted`. Logits exist for a chunk of tokens at a time.
    """
    head: Any = model.get_output_embeddings()
    chosen, targets = hidden[:, :-1][counted], ids[:, 1:][counted]
    idle = torch.tensor(list(banned), device=ids.device)
    size = max(1, CHUNK_LOGITS // head.weight.shape[0])
    parts = [
        checkpoint(_predicted, head, part, wanted, idle, use_reentrant=False)
        for part, wanted in zip(chosen.split(size), targets.split(size), strict=True)
    ]
    log_probs = hidden.new_zeros(counted.shape, dtype=torch.float32)
    is_top1 = torch.zeros_like(counted)
    if parts:
        found, top = (torch.cat(one) for one in zip(*parts, strict=True))
        log_probs = log_probs.masked_scatter(counted, found)
        is_top1 = is_top1.masked_scatter(counted, top)
    return log_probs, is_top1


def _predicted(head: nn.Module, hidden: Tensor, targets: Tensor, banned: Tensor) -> tuple[Tensor, Tensor]:
    logits = head(hidden).float().index_fill(1, banned, -torch.inf)
    return logits.log_softmax(-1).gather(1, targets[:, None])[:, 0], logits.argmax(-1) == targets


def arguments(folder: str, *, config: SftConfig, examples: int, seed: int, half: bool = False) -> TrlConfig:
    """A run that writes nothing, reports to nobody and prepares nothing: the examples are tokens already."""
    updates = config.updates(examples)
    return TrlConfig(
        output_dir=folder,
        max_steps=updates,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.rate,
        lr_scheduler_type=SCHEDULES[config.lr_schedule],
        warmup_steps=max(1, round(updates * config.warmup_share)) if config.warmup_share else 0,
        weight_decay=config.weight_decay,
        adam_beta1=config.beta1,
        adam_beta2=config.beta2,
        max_grad_norm=config.max_grad_norm,
        seed=seed % 2**32,  # NumPy takes no larger one
        train_sampling_strategy="random" if config.packing else "group_by_length",
        dataloader_drop_last=bool(config.epochs) and examples >= config.batch_size,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        max_length=None,
        bf16=half,  # TRL decides by the device unless told
        use_cpu=not torch.cuda.is_available(),  # without it, bf16 on a CPU is refused
        gradient_checkpointing=config.gradient_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},  # the other kind gives an adapter no gradient
        dataloader_pin_memory=False,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
