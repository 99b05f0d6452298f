"""Supervised start of a model with TRL's `SFTTrainer`: token ids with a weight per token -> a checkpoint.

    loss = sum of w_t * -log p(token t | tokens before) / sum of w_t    over an optimizer step

The weights are 1 on tokens that the model shall say, 0 on tokens that it only reads, and may lie between. The
checkpoint has a new optimizer, and its weights become the reference of the run. If an adapter learns (`lora`), it goes
on training in the loop over the same base. Ctrl-C saves the steps so far in `<out>.partial/`, and the same call goes on
from there; a warm start that is killed starts again.

No other module of the core knows TRL. `compute_loss` is the method that TRL names for a custom loss.
`fused_lm_head=True` is a private argument of the models that `SFTTrainer` prepares: with it they return the
log-probabilities of labels[:, 1:], zero if a label is -100.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.trainer_callback import PrinterCallback, TrainerCallback
from trl import SFTConfig as TrlConfig
from trl import SFTTrainer

from rla.config.training import BETA1, SftConfig, TrainConfig
from rla.errors import UserError
from rla.models.checkpoint import open_checkpoint
from rla.models.load import load_model, load_tokenizer
from rla.pictures.encoder import VisionCollator, VisionText, vision_states
from rla.pictures.vision import load_vision
from rla.store.atomic import write_json
from rla.store.records import ImageSpan, columns
from rla.training.checkpoints import (
    WEIGHTS,
    load_state_weights,
    refuse_existing,
    save_tensors,
    trainable,
    write_adapter,
    write_checkpoint,
)
from rla.training.cost import layer_sizes, pass_tokens, return_freed_memory
from rla.training.model import CHUNK_LOGITS, load_adapted
from rla.training.packing import enable_branches, enable_packing, forks, pack
from rla.training.sequences import Example, grouped
from rla.training.shared import DeferredInterrupts, Ranks

STOPPED = "stopped.json"
IGNORED = -100
SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}
Row = dict[str, Any]
Rounds = Sequence[tuple[Sequence[Example], SftConfig]]


def sft(
    *,
    model_folder: Path | str,
    out: Path,
    rounds: Rounds,
    seed: int,
    log: Callable[[Row], None] | None = None,
    record: Mapping[str, Any] | None = None,
    measured: Mapping[str, float] | None = None,
    replace: bool = False,
    lora: TrainConfig | None = None,
) -> Row:
    """Train on the examples of each round in turn, each with a new optimizer, and write the checkpoint `out`.

    `measured`: numbers about the examples, kept among the metrics. `lora`: the parameters of the loop's training; the
    adapter alone learns. Returns the metrics; `log` gets the metrics of every step; `record` is added to the
    checkpoint's manifest. With `replace` a checkpoint at `out` stays until the new one is complete.

    Raises UserError if `out` exists otherwise, and if no token of a round has a weight.
    """
    started = time.perf_counter()
    refuse_existing(out, replace=replace)
    rows = [_rows(examples) for examples, _ in rounds]
    return_freed_memory()
    previous = open_checkpoint(model_folder)
    if lora is None:
        model, settings = load_model(previous.model, dtype="float32"), None
    else:
        model, settings = load_adapted(previous, lora)
        if previous.adapter is not None and previous.state is not None:
            load_state_weights(model, previous.state, WEIGHTS)
    vision = load_vision(previous.model)
    images = {image.digest: image.png for examples, _ in rounds for one in examples for image in one.images}
    collator = None if vision is None else VisionCollator(vision, images.__getitem__)
    trained = f"{previous.digest or previous.model}{'' if lora is None else f' {lora.adapter}'}"
    digest = hashlib.sha256(repr([trained, seed, [config for _, config in rounds]]).encode())
    for row in chain.from_iterable(rows):
        digest.update(json.dumps(row).encode())
    progress = _Progress(out.with_name(f"{out.name}.partial") / "sft", digest.hexdigest())
    if log is not None:
        for step in progress.steps:
            log({**step, "resumed": True})
    sizes, tokenizer = layer_sizes(model.config), load_tokenizer(previous.model)
    half = lora is not None and lora.dtype == "bfloat16"
    with DeferredInterrupts(Ranks()) as interrupts:
        for number, (given, (_, config)) in enumerate(zip(rows, rounds, strict=True)):
            if number < progress.round:  # it is in the weights that a later round was stopped with
                continue
            if number > progress.round:
                progress.begin(number)
            bound = pass_tokens(sizes, recomputed=config.gradient_checkpointing, cuda=torch.cuda.is_available())
            trainer = WeightedTrainer(
                model=model,
                args=arguments(str(progress.folder), config=config, examples=len(given), seed=seed, half=half),
                train_dataset=Dataset.from_list(given),
                processing_class=tokenizer,
                packing=config.packing,
                tokens_per_pass=config.tokens_per_pass or bound,
                steps=progress.steps,
                log_step=log,
                vision=collator,
            )
            trainer.add_callback(_SaveWhenInterrupted(interrupts))
            trainer.train(resume_from_checkpoint=progress.checkpoint)
            if trainer.state.global_step < trainer.state.max_steps:
                progress.save()
                raise KeyboardInterrupt
        state = adapter = None
        if lora is not None:
            state = progress.folder / "state"
            state.mkdir(parents=True, exist_ok=True)
            save_tensors(((name, value.detach()) for name, value in trainable(model).items()), state, WEIGHTS)
            adapter = write_adapter(state, settings)
        steps = progress.steps
        tail = steps[-max(1, (len(steps) - progress.before) // 10) :]  # a tenth of the last round
        metrics = {
            "steps": len(steps),
            "tokens": sum(one["tokens"] for one in steps),
            "first_loss": steps[0]["loss"],
            "last_loss": sum(one["loss"] for one in tail) / len(tail),
            "last_accuracy": sum(one["accuracy"] for one in tail) / len(tail),
            "examples": sum(map(len, rows)),
            "seconds": round(time.perf_counter() - started, 3),
            **(measured or {}),
        }
        write_checkpoint(
            out,
            previous=previous,
            model=None if adapter else model,
            dtype="float32",
            metrics=metrics,
            state=state,
            adapter=adapter,
            record=record,
            replace=replace,
        )
        shutil.rmtree(progress.folder, ignore_errors=True)
        with suppress(OSError):
            progress.folder.parent.rmdir()
    if interrupts.asked:
        raise KeyboardInterrupt
    return metrics


def _rows(examples: Sequence[Example]) -> list[Row]:
    """The examples in which a token trains, as rows of a data set; the first token is never predicted.

    TRL takes a column `images` for raw images and asks for a processor, so the spans have another name.
    """
    rows = [
        {
            "input_ids": list(one.token_ids),
            "loss_weights": [float(x) for x in one.weights],
            "branches": [list(branch) for branch in one.branches],
            "image_spans": [columns(image.span()) for image in one.images],
        }
        for one in examples
        if any(one.weights[1:])
    ]
    if not rows:
        raise UserError("warm start: no token of any example has a weight; raise warm_start.*.examples")
    return rows


class _Progress:
    """The training that Ctrl-C stopped: its round, the metrics of the `steps` so far, of which `before` belong to
    earlier rounds, and the trainer's own checkpoint in `folder`. Progress on inputs of another `digest` is removed.
    """

    def __init__(self, folder: Path, digest: str) -> None:
        self.folder, self.digest = folder, digest
        self.steps: list[Row] = []
        with suppress(OSError, ValueError, KeyError, TypeError):
            saved = json.loads((folder / STOPPED).read_text())
            place = folder / saved["checkpoint"]
            if saved["digest"] == digest and place.is_dir():
                self.round, self.before, self.steps = saved["round"], saved["before"], list(saved["steps"])
                self.checkpoint: str | None = str(place)
                return
        self.begin(0)

    def begin(self, number: int) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.round, self.before, self.checkpoint = number, len(self.steps), None

    def save(self) -> None:
        """Record the checkpoint that the trainer has saved: last, so that half a checkpoint never counts."""
        name = f"checkpoint-{len(self.steps) - self.before}"
        content = {"digest": self.digest, "round": self.round, "before": self.before, "steps": self.steps}
        write_json(self.folder / STOPPED, {**content, "checkpoint": name})


class WeightedTrainer(SFTTrainer):
    """`SFTTrainer` with a weight per token. It appends loss, accuracy (on tokens of full weight) and tokens of every
    optimizer step to `steps`.

    A batch is a list of passes (`Collator`). Their losses share the sum of weights of the whole batch, so an update is
    the same however it is divided.
    """

    def __init__(
        self,
        *,
        model: PreTrainedModel,
        packing: bool,
        tokens_per_pass: int,
        steps: list[Row],
        log_step: Callable[[Row], None] | None,
        vision: VisionCollator | None,
        **arguments: Any,
    ) -> None:
        packs = packing and enable_packing(model)
        super().__init__(model=model, data_collator=Collator(packs=packs, tokens_per_pass=tokens_per_pass), **arguments)
        enable_branches(model)
        self.remove_callback(PrinterCallback)
        self.whole, self.vision = model, vision
        self.steps, self._log_step = steps, log_step
        self._counts: list[Tensor] = []  # of each pass of an update: right tokens, tokens of full weight

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        passes = inputs["passes"]
        self._counts = []
        losses = [super(WeightedTrainer, self).training_step(model, one, num_items_in_batch) for one in passes]
        loss = torch.stack(losses).sum()
        right, full = torch.stack(self._counts).sum(0)
        step = {
            "step": len(self.steps) + 1,
            "loss": float(loss),
            "accuracy": float(right / full.clamp(min=1)),
            "tokens": sum(one["input_ids"].numel() for one in passes),
        }
        self.steps.append(step)
        if self._log_step is not None:
            self._log_step(step)
        return loss

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Row,
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        ids, weights = inputs["input_ids"], inputs["loss_weights"][:, 1:]
        # Padding follows the tokens of a row, which causal attention does not see: no mask is faster.
        attention: dict[str, Any] = {}
        if inputs["packed"]:
            packing = pack(inputs["sizes"], inputs["branches"], device=ids.device)
            attention = {"packing": packing, "position_ids": packing.places}
        elif (found := forks(inputs["branches"], ids.shape[1], device=ids.device)) is not None:
            attention = {"attention_mask": found.mask(self.whole), "position_ids": found.place}
        if self.vision is None:
            labels = ids.masked_fill(inputs["loss_weights"] == 0, IGNORED)
            outputs = model(input_ids=ids, labels=labels, use_cache=False, fused_lm_head=True, **attention)
            log_probs, is_top1 = outputs.log_probs, outputs.is_top1
        else:
            texts = [
                VisionText(length=length, images=[ImageSpan(**one) for one in spans], branches=branches)
                for length, spans, branches in zip(
                    inputs["sizes"], inputs["image_spans"], inputs["branches"], strict=True
                )
            ]
            attention.pop("position_ids", None)
            vision = self.vision.inputs(texts, packed=inputs["packed"], device=ids.device)
            hidden = vision_states(self.whole, ids, vision, **attention)
            banned = self.vision.vision.banned
            log_probs, is_top1 = _next_log_probs(self.whole, hidden, ids, counted=weights != 0, banned=banned)
        full = weights == 1
        self._counts.append(torch.stack([(is_top1 * full).sum(), full.sum()]))
        return cast("Tensor", -(log_probs * weights).sum() / inputs["total"])


@dataclass(eq=False)
class _SaveWhenInterrupted(TrainerCallback):
    """Stop after Ctrl-C and save a checkpoint, except at the last step: resumed from there, it would make one more."""

    interrupts: DeferredInterrupts

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.interrupts.asked and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Collator:
    """Cuts the examples of an update into passes of at most `tokens_per_pass` tokens, or one longer text.

    `packs`: examples follow each other in one row instead of being padded rows.
    """

    packs: bool
    tokens_per_pass: int

    def __call__(self, examples: Sequence[Row]) -> Row:

        def fits(group: list[Row], piece: Row) -> bool:
            sizes = [len(one["input_ids"]) for one in (*group, piece)]
            return (sum(sizes) if self.packs else len(sizes) * max(sizes)) <= self.tokens_per_pass

        cut = (piece for example in examples for piece in pieces(example, most=self.tokens_per_pass))
        passes = [self._collate(group) for group in grouped(cut, fits)]
        total = sum(one["loss_weights"][:, 1:].sum() for one in passes)
        return {"passes": [one | {"total": total} for one in passes]}

    def _collate(self, examples: Sequence[Row]) -> Row:
        """(B, L) ids and weights, padded on the right with weight 0, or packed (1, T), where no token predicts the
        first one of the next example. `branches`, `sizes` and `image_spans` are lists by example.
        """
        ids = [torch.tensor(one["input_ids"]) for one in examples]
        weights = [torch.tensor(one["loss_weights"], dtype=torch.float32) for one in examples]
        for one in weights if self.packs else ():
            one[0] = 0.0
        return {
            "input_ids": torch.cat(ids)[None] if self.packs else pad_sequence(ids, batch_first=True),
            "loss_weights": torch.cat(weights)[None] if self.packs else pad_sequence(weights, batch_first=True),
            "branches": [one["branches"] for one in examples],
            "sizes": [len(one) for one in ids],
            "image_spans": [one["image_spans"] for one in examples],
            "packed": self.packs,
        }


def pieces(example: Row, *, most: int) -> list[Row]:
    """An example of more than `most` tokens as several, each with some of its branches (at least one) and the text that
    they continue. Branches do not see each other, so the losses are the same as of the whole example.
    """
    branches, weights = example["branches"], example["loss_weights"]
    if len(weights) <= most or not branches or any(weights[: min(start for start, _, _ in branches)]):
        return [example]

    def fits(group: list[list[int]], branch: list[int]) -> bool:
        together = (*group, branch)
        return max(at for _, _, at in together) + sum(end - start for start, end, _ in together) <= most

    return [_with_branches(example, group) for group in grouped(branches, fits)]


def _with_branches(example: Row, branches: Sequence[Sequence[int]]) -> Row:
    reach, given = max(anchor for _, _, anchor in branches), example["image_spans"]
    ids, weights, kept = list(example["input_ids"][:reach]), [0.0] * reach, []
    images = [one for one in given if one["start"] + one["length"] <= reach]
    for start, end, anchor in branches:
        moved = len(ids) - start
        images += [one | {"start": one["start"] + moved} for one in given if start <= one["start"] < end]
        kept.append([len(ids), len(ids) + end - start, anchor])
        ids += example["input_ids"][start:end]
        weights += example["loss_weights"][start:end]
    return {"input_ids": ids, "loss_weights": weights, "branches": kept, "image_spans": images}


def _next_log_probs(
    model: PreTrainedModel, hidden: Tensor, ids: Tensor, *, counted: Tensor, banned: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """(B, L - 1) log-probabilities of the next tokens, and whether each is the likeliest; zero if not `counted`.

    Logits exist for a chunk of tokens at a time.
    """
    head: Any = model.get_output_embeddings()
    chosen, targets = hidden[:, :-1][counted], ids[:, 1:][counted]
    idle = torch.tensor(list(banned), device=ids.device)

    def predicted(part: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(part).float().index_fill(1, idle, -torch.inf)
        return logits.log_softmax(-1).gather(1, wanted[:, None])[:, 0], logits.argmax(-1) == wanted

    size = max(1, CHUNK_LOGITS // head.weight.shape[0])
    parts = [
        checkpoint(predicted, part, wanted, use_reentrant=False)
        for part, wanted in zip(chosen.split(size), targets.split(size), strict=True)
    ]
    log_probs = hidden.new_zeros(counted.shape, dtype=torch.float32)
    is_top1 = torch.zeros_like(counted)
    if parts:
        found, top = (torch.cat(one) for one in zip(*parts, strict=True))
        log_probs = log_probs.masked_scatter(counted, found)
        is_top1 = is_top1.masked_scatter(counted, top)
    return log_probs, is_top1


def arguments(folder: str, *, config: SftConfig, examples: int, seed: int, half: bool = False) -> TrlConfig:
    """Settings of a trainer that writes, reports and prepares nothing: the examples are tokens already."""
    updates = config.updates(examples)
    return TrlConfig(
        output_dir=folder,
        max_steps=updates,
        per_device_train_batch_size=config.batch_size,
        learning_rate=config.rate,
        lr_scheduler_type=SCHEDULES[config.lr_schedule],
        warmup_steps=max(1, round(updates * config.warmup_share)) if config.warmup_share else 0,
        weight_decay=config.weight_decay,
        adam_beta1=BETA1,
        adam_beta2=config.beta2,
        max_grad_norm=1.0,
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
