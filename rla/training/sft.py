"""Supervised start of a model with TRL's `SFTTrainer`: token ids and a weight per token -> a checkpoint.

    loss = sum of w_t * -log p(token t | tokens before) / sum of w_t    over an optimizer step
The weights are 1 on what the model shall say, 0 on what it only reads, and may lie between. The checkpoint
has a new optimizer, and its weights become the reference of the run. Where an adapter learns (`lora`), it goes on
training in the loop, and the model that it began with stays the base. Ctrl-C saves the steps made so far in
`<out>.partial/`, and the same call goes on from there. A warm start that is killed starts again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.config.training import SftConfig, TrainConfig
from rla.errors import UserError
from rla.llm.base import PlacedImage
from rla.models.checkpoint import open_checkpoint
from rla.store.atomic import write_json
from rla.store.records import columns
from rla.training.checkpoints import refuse_existing, write_checkpoint
from rla.training.footprint import layer_sizes, pass_tokens, return_freed_memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from rla.models.vision import VisionFormat

STOPPED = "stopped.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Token ids with a loss weight each. A branch (start, end, anchor) is a run of tokens that continues the first
    `anchor` tokens and sees nothing else but itself: many short replies to one long text, in one pass. `images`: those
    that stand among the tokens, in branches too.
    """

    token_ids: Sequence[int]
    weights: Sequence[float]
    branches: Sequence[tuple[int, int, int]] = ()
    images: Sequence[PlacedImage] = ()


Log = Callable[[dict[str, Any]], None]


def sft(
    *,
    model_folder: Path | str,
    out: Path,
    examples: Sequence[Example],
    config: SftConfig,
    seed: int,
    threads: int = 0,
    log: Log | None = None,
    record: Mapping[str, Any] | None = None,
    then: tuple[Sequence[Example], SftConfig] | None = None,
    measured: Mapping[str, float] | None = None,
    replace: bool = False,
    lora: TrainConfig | None = None,
) -> dict[str, Any]:
    """Train `config.steps` or `config.epochs`, by optimizer steps of `config.batch_size` examples, and write the
    checkpoint `out`.

    `then`: a second training that goes on from the first one's weights, with an optimizer of its own.
    `measured`: of how the examples were made; kept among the metrics. `lora`: with which the loop will train; the
    adapter learns, and nothing else. None: all weights do.
    Returns the metrics; `log` gets those of every step; `record` is added to the checkpoint's manifest. With `replace`
    a checkpoint at `out` stays until the new one is complete. Raises UserError where `out` exists otherwise, where no
    token has a weight, and where an example has fewer or more weights than tokens.
    """
    import torch

    from rla.models.load import load_model, load_tokenizer
    from rla.models.vision import load_vision
    from rla.training.prepare import taught_adapter, write_adapter
    from rla.training.state import WEIGHTS, trainable
    from rla.training.tensors import save_tensors

    started = time.perf_counter()
    refuse_existing(out, replace=replace)
    parts = [(_useful(taught), its) for taught, its in ((examples, config), *([then] if then else []))]
    if threads:
        torch.set_num_threads(threads)
    return_freed_memory()
    previous = open_checkpoint(model_folder)
    model, settings = (
        (load_model(previous.model, dtype="float32"), None) if lora is None else taught_adapter(previous, lora)
    )
    vision = load_vision(previous.model)
    tokenizer = load_tokenizer(previous.model)
    kind = "" if lora is None else f" {lora.lora} {lora.dtype}"
    stopped = StoppedSft.of(out, model=f"{previous.digest or previous.model}{kind}", parts=parts, seed=seed)
    steps = stopped.restored()
    if log is not None:
        for step in steps:
            log(step)
    last = stopped.last
    for number, (useful, its) in enumerate(parts):
        if number < stopped.part:  # its weights are in those that the later part was stopped with
            continue
        last = last if number == stopped.part else len(steps)
        _fit(
            model,
            tokenizer,
            useful,
            config=its,
            seed=seed,
            log=log,
            vision=vision,
            steps=steps,
            stopped=stopped.begin(number, last),
            half=lora is not None and lora.dtype == "bfloat16",
        )
    state = adapter = None
    if lora is not None:
        state = stopped.folder / "state"
        save_tensors(((name, value.detach()) for name, value in trainable(model).items()), state, WEIGHTS)
        adapter = write_adapter(state, settings)
    model.requires_grad_(True)  # a frozen tower, too, belongs to the checkpoint
    seconds = round(time.perf_counter() - started, 3)
    metrics = {
        **_summary(steps, last=len(steps) - last),
        "examples": sum(len(useful) for useful, _ in parts),
        "seconds": seconds,
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
    stopped.clear()
    return metrics


@dataclass(slots=True, kw_only=True)
class StoppedSft:
    """What a call that Ctrl-C stopped has saved: which of the trainings it was in, and the metrics of the steps.

    `<out>.partial/sft/checkpoint-<n>/` is the trainer's own checkpoint. It belongs to exactly one input.
    """

    folder: Path
    digest: str
    part: int = 0
    last: int = 0  # steps before this part

    @classmethod
    def of(
        cls, out: Path, *, model: str, parts: Sequence[tuple[Sequence[Example], SftConfig]], seed: int
    ) -> StoppedSft:
        """Of the call that makes `out` from these inputs."""
        digest = hashlib.sha256(json.dumps([model, seed]).encode())
        for examples, config in parts:
            digest.update(repr(config).encode())
            for one in examples:
                shown = [columns(image.span()) for image in one.images]
                row = [list(one.token_ids), [float(x) for x in one.weights], list(one.branches), shown]
                digest.update(json.dumps(row).encode())
        return cls(folder=out.with_name(f"{out.name}.partial") / "sft", digest=digest.hexdigest())

    def restored(self) -> list[dict[str, Any]]:
        """The metrics of the steps that are saved. What belongs to another input is removed."""
        try:
            saved = json.loads((self.folder / STOPPED).read_text())
            if saved["digest"] == self.digest and (self.folder / saved["checkpoint"]).is_dir():
                self.part, self.last = saved["part"], saved["last"]
                return list(saved["steps"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        self.clear()
        return []

    def begin(self, part: int, last: int) -> StoppedSft:
        """A part of the training begins, after `last` steps of those before."""
        if part != self.part:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.part, self.last = part, last
        return self

    @property
    def checkpoint(self) -> str | None:
        """Where the trainer goes on from."""
        found = sorted(self.folder.glob("checkpoint-*"), key=lambda path: path.stat().st_mtime)
        return str(found[-1]) if found and (self.folder / STOPPED).is_file() else None

    def save(self, steps: Sequence[dict[str, Any]]) -> None:
        """The trainer has saved its checkpoint. This record comes last, so half a checkpoint is never gone on from."""
        count = len(steps) - self.last
        content = {"digest": self.digest, "part": self.part, "last": self.last, "steps": list(steps)}
        write_json(self.folder / STOPPED, {**content, "checkpoint": f"checkpoint-{count}"})

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()


def _summary(steps: Sequence[dict[str, Any]], *, last: int) -> dict[str, Any]:
    """First loss, and loss and accuracy over a tenth of the `last` steps."""
    tail = steps[-max(1, last // 10) :]
    return {
        "steps": len(steps),
        "tokens": sum(one["tokens"] for one in steps),
        "first_loss": steps[0]["loss"],
        "last_loss": sum(one["loss"] for one in tail) / len(tail),
        "last_accuracy": sum(one["accuracy"] for one in tail) / len(tail),
    }


def _useful(examples: Sequence[Example]) -> list[Example]:
    """The examples of which a token trains: the first one is never predicted."""
    for number, one in enumerate(examples):
        if len(one.token_ids) != len(one.weights):
            raise UserError(
                f"warm start: example {number} has {len(one.token_ids)} tokens but {len(one.weights)} weights"
            )
    useful = [one for one in examples if any(one.weights[1:])]
    if not useful:
        raise UserError("warm start: no token of any example has a weight; raise warm_start.*.examples")
    return useful


def _fit(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Sequence[Example],
    *,
    config: SftConfig,
    seed: int,
    log: Log | None,
    vision: VisionFormat | None,
    steps: list[dict[str, Any]],
    stopped: StoppedSft,
    half: bool,
) -> None:
    """Train `model` in place, in bf16 with `half`; the metrics of every step are added to `steps`.

    Raises KeyboardInterrupt after the step in which Ctrl-C was pressed, when what it led to is saved.
    """
    import torch
    from datasets import Dataset

    from rla.models.sight import vision_tower
    from rla.training.ranks import Ranks
    from rla.training.resume import HeldInterrupts
    from rla.training.sft_trainer import WeightedTrainer, arguments

    eyes = None
    if vision is not None:
        from rla.training.batching import Eyes

        vision_tower(model).requires_grad_(config.vision == "trained")
        eyes = Eyes(vision, {image.digest: image.png for one in examples for image in one.images})

    rows = [
        {
            "input_ids": list(one.token_ids),
            "loss_weights": [float(x) for x in one.weights],
            "branches": [list(branch) for branch in one.branches],
            **({"shown": [columns(image.span()) for image in one.images]} if eyes is not None else {}),
        }
        for one in examples
    ]
    sizes, recomputed = layer_sizes(model.config), config.gradient_checkpointing
    bound = pass_tokens(sizes, recomputed=recomputed, cuda=torch.cuda.is_available())
    with HeldInterrupts(Ranks()) as interrupts:
        trainer = WeightedTrainer(
            model=model,
            args=arguments(str(stopped.folder), config=config, examples=len(examples), seed=seed, half=half),
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            packing=config.packing,
            tokens_per_pass=config.tokens_per_pass or bound,
            on_step=log,
            eyes=eyes,
            interrupts=interrupts,
        )
        trainer.steps = steps
        trainer.train(resume_from_checkpoint=stopped.checkpoint)
        if interrupts.asked:
            stopped.save(steps)
            raise KeyboardInterrupt
