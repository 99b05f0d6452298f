"""The training stage: a checkpoint and sequences with advantages -> the next checkpoint.

    loss = sum over the loss tokens of an optimizer step of  w (f * surrogate + kl_coef * k3) - entropy_coef * H / N

`losses` defines the surrogate, the token weights w, the sampler's correction f and k3. The ratio is taken against the
sampler's own log-probabilities (`old: sampler`), or against the model's at the start of the stage (`old: trainer`). A
killed stage continues from the last save in `<out>.partial/`, with the same result. Ctrl-C saves the updates so far.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rla.config.training import TrainConfig
from rla.errors import UserError
from rla.models.checkpoint import ADAPTER, MODEL, PARTS, REFERENCE, Checkpoint, verify_model
from rla.models.load import hollow_model, load_model, loadable
from rla.pictures.encoder import VisionCollator, has_vision_encoder, write_images
from rla.pictures.shard import stream_images
from rla.pictures.vision import load_vision
from rla.training.checkpoints import (
    WEIGHTS,
    TensorFiles,
    TrainingProgress,
    TrainState,
    carry_over,
    full_shape,
    load_state_weights,
    open_to_train,
    refuse_existing,
    save_tensors,
    stage_digest,
    write_adapter,
    write_checkpoint,
)
from rla.training.losses import LossInputs, correction, extreme, k3, policy_loss, token_weights
from rla.training.model import (
    Batch,
    TokenScorer,
    checkpoint_gradients,
    collate,
    freeze_vision,
    load_adapted,
    micro_batches,
)
from rla.training.packing import enable_packing
from rla.training.sequences import StoredSequences, TrainingSequence, plan_updates, write_sequences
from rla.training.shared import Compute, DeferredInterrupts, Ranks, Sharing, make_backend

Metrics = dict[str, Any]
NO_SIGNAL = "no sample has an advantage: the checkpoint is carried over unchanged"
MAX_SKIPPED = 3  # updates of a stage whose gradient may be not finite
EXTREMES = ("ratio_max", "sampler_gap_max")
SHARES = ("clip_low_share", "clip_high_share", "dual_clip_share")
AVERAGED = ("loss", "kl", *SHARES, "correction", "approx_kl", "entropy", "grad_norm")


def train(
    *,
    model_folder: Path | str,
    out: Path,
    sequences: Iterable[TrainingSequence],
    config: TrainConfig,
    temperature: float,
    seed: int,
    log: Callable[[Metrics], None] | None = None,
    save_interval_s: float = 60.0,
    record: Mapping[str, Any] | None = None,
    most_too_long: float = 1.0,
    replicas: int = 1,
    replace: bool = False,
    images: Path | None = None,
    earlier: bool = False,
) -> Metrics:
    """Train and write the checkpoint `out`; returns the stage's metrics.

    `sequences` are consumed once, to a file next to `out`. `temperature` is the sampling temperature. Replies that end
    beyond `config.max_tokens` are counted and left out; a share of more than `most_too_long` is refused. `log`
    gets the metrics of every update; those of a killed call come first, marked as `resumed`. `record` is added to the
    checkpoint's manifest. `replicas`: groups of processes that each hold the whole model. With `replace` a checkpoint
    at `out` stays until the new one is complete. `images`: the shard with the pictures of the sequences. `earlier`:
    some replies are of earlier models. Raises UserError if `out` exists otherwise, if token ids and model do not match,
    if a file of the checkpoint is damaged, and if more than `MAX_SKIPPED` gradients are not finite.
    """
    started = time.perf_counter()
    ranks = Ranks.join()
    compute = Compute.choose(config, ranks, replicas=replicas)
    refuse_existing(out, replace=replace)
    previous = open_to_train(model_folder)
    progress = TrainingProgress(out=out, interval_s=save_interval_s)
    with (
        progress.locked(first=ranks.first),
        _stored(progress.folder, sequences, previous.model, config=config, compute=compute, images=images) as kept,
    ):
        stats = kept.stats
        found: Metrics = {
            "sequences": len(stats.lengths),
            "replies": stats.replies,
            "replies_too_long": stats.replies_too_long,
            "tokens": sum(stats.lengths),
            "loss_tokens": sum(stats.loss_tokens),
        }
        if stats.replies_too_long > most_too_long * stats.replies:
            raise UserError(
                f"{stats.replies_too_long} of {stats.replies} replies end beyond max_tokens = {config.max_tokens} and "
                f"would not train, more than rollout.max_failed_share = {most_too_long}; raise the stage's max_tokens, "
                "or the share"
            )
        if not stats.signal and not (config.zero_advantage != "drop" and stats.pieces):
            metrics = {"updates": 0, "total_updates": previous.updates, **found, "note": NO_SIGNAL}
            if ranks.first:
                carry_over(previous, out, metrics=metrics, record=record, replace=replace)
            ranks.barrier()
            return metrics
        progress.digest = stage_digest(previous, stats.digest, config=config, temperature=temperature, seed=seed)
        # Without a state the weights alone count.
        if ranks.first:
            verify_model(previous.model, (MODEL, ADAPTER) if previous.state is None else PARTS)
        stage = prepare(previous, kept, config=config, temperature=temperature, seed=seed, compute=compute)
        history = _run_updates(stage, progress=progress, seed=seed, log=log)
        speed = _pace(found["tokens"], time.perf_counter() - started)
        metrics = {**_summary(history, gap=not earlier), "total_updates": stage.state.updates, **found, **speed}
        folder = progress.folder / "last"
        stage.state.save(folder)
        if ranks.first:
            adapter = None if stage.adapter is None else write_adapter(folder, stage.adapter)
            if adapter is None and previous.reference is None:
                first, dtype = load_model(previous.model), getattr(torch, config.dtype)
                save_tensors(
                    ((name, one.detach().to(dtype)) for name, one in first.named_parameters()), folder, REFERENCE
                )
            write_checkpoint(
                out,
                previous=previous,
                model=None if adapter is not None else _whole_model(stage, previous, folder),
                dtype=config.dtype,
                state=folder,
                updates=stage.state.updates,
                adapter=adapter,
                metrics=metrics,
                history=history,
                record=record,
                replace=replace,
            )
            progress.clear()
        ranks.barrier()
    return metrics


@contextmanager
def _stored(
    folder: Path,
    sequences: Iterable[TrainingSequence],
    model: Path | str,
    *,
    config: TrainConfig,
    compute: Compute,
    images: Path | None,
) -> Iterator[StoredSequences]:
    """The stage's sequences in a file, and their pictures in another: rank 0 writes them, all ranks read them."""
    ranks, stats = compute.ranks, None
    file, pictures = folder / "sequences.jsonl", folder / "images.zip"
    with ExitStack() as held:
        if ranks.first:
            for path in (file, pictures):
                held.callback(path.unlink, missing_ok=True)
            verify_model(model, weights=False)  # before its configuration is read
            packed, budget = enable_packing(hollow_model(model)), compute.tokens_per_batch
            stats = write_sequences(file, sequences, max_tokens=config.max_tokens, budget=budget, packed=packed)
            if images is not None and stats.pictures:
                write_images(pictures, stream_images(images, stats.pictures))
        stats = ranks.broadcast(stats)
        png_of = held.enter_context(ZipFile(pictures)).read if images is not None and stats.pictures else None
        yield held.enter_context(closing(StoredSequences(file, stats, png_of=png_of)))


@dataclass(slots=True, kw_only=True)
class PreparedStage:
    """The state that all updates of a stage share.

    Log-probabilities have an entry for each sequence: `reference` is None without KL, `old` is None if the ratio is
    taken against the sampler's. `adapter`: peft's settings of the adapter that trains.
    """

    config: TrainConfig
    compute: Compute
    scorer: TokenScorer
    state: TrainState
    sequences: StoredSequences
    reference: list[Tensor] | None = None
    old: list[Tensor] | None = None
    vision: VisionCollator | None = None
    adapter: Any = None

    def passes(self, indices: Sequence[int]) -> list[list[int]]:
        """The forward passes for these sequences, longest first."""
        stats, tokens = self.sequences.stats, self.compute.tokens_per_batch
        if self.scorer.packs:
            return micro_batches(stats.lengths, indices, tokens_per_batch=tokens)
        return micro_batches(stats.longest, indices, tokens_per_batch=tokens, rows=stats.rows)

    def collated(self, chosen: Sequence[TrainingSequence]) -> Batch:
        return collate(chosen, device=self.compute.device, packed=self.scorer.packs, vision=self.vision)


def prepare(
    previous: Checkpoint,
    sequences: StoredSequences,
    *,
    config: TrainConfig,
    temperature: float,
    seed: int,
    compute: Compute,
) -> PreparedStage:
    """Load model, optimizer and state, and score the reference. Raises UserError if model and rows do not match."""
    torch.manual_seed(seed)
    ranks, lora = compute.ranks, config.lora.rank > 0
    model, adapter, files = _load(previous, config=config, compute=compute)
    if sequences.stats.highest >= model.config.get_text_config().vocab_size:
        raise UserError(
            f"{previous.model}: knows no token {sequences.stats.highest}; train the model that made the trajectories"
        )
    if config.gradient_checkpointing:
        checkpoint_gradients(model)
    vision = load_vision(previous.model) if has_vision_encoder(model) else None
    if vision is None and sequences.stats.pictures:
        raise UserError(f"{previous.model}: reads texts alone; train the model that saw the pictures of these rows")
    scorer = TokenScorer(
        model,
        temperature=temperature,
        train_entropy=config.entropy_coef != 0,
        mixed=compute.mixed,
        banned=() if vision is None else vision.banned,
    )
    state = TrainState(model=model, backend=make_backend(scorer, config, compute), ranks=ranks)
    stage = PreparedStage(
        config=config,
        compute=compute,
        scorer=scorer,
        state=state,
        sequences=sequences,
        vision=None if vision is None else VisionCollator(vision, sequences.png_of, always=ranks.sharded),
        adapter=adapter,
    )
    if files is not None:
        for name, parameter in model.named_parameters():
            state.backend.set_weight(parameter, files.read(name))
    # The model is its own reference before the state's weights are loaded, so two copies never exist. A new adapter
    # changes nothing, so with LoRA the base is the reference.
    if config.kl_coef and config.kl_reference == "initial":
        if previous.reference is not None and not lora:
            state.load_weights(previous.reference, REFERENCE)
        stage.reference = _score(stage)
    if previous.state is not None and (previous.adapter is not None or not lora):
        state.load(previous.state)
    from_previous = config.kl_coef != 0 and config.kl_reference == "previous"
    if from_previous or config.rescored:
        current = _score(stage)
        stage.reference = current if from_previous else stage.reference
        stage.old = current if config.rescored else None
    return stage


@torch.no_grad()
def _score(stage: PreparedStage) -> list[Tensor]:
    """The log-probabilities of the loss tokens of every sequence, under the present weights."""
    sequences, ranks = stage.sequences, stage.compute.ranks
    scores: dict[int, Tensor] = {}
    for indices, counted in ranks.share(stage.passes(range(len(sequences)))):
        logp, _ = stage.state.backend.module(stage.collated([sequences[index] for index in indices]))
        if counted:
            parts = logp.split([sequences.stats.loss_tokens[index] for index in indices])
            scores.update(zip(indices, parts, strict=True))
    if ranks.world > 1:
        every = ranks.gather({index: part.cpu() for index, part in scores.items()})
        scores = {index: part.to(stage.compute.device) for one in every for index, part in one.items()}
    return [scores[index] for index in range(len(sequences))]


def _load(
    previous: Checkpoint, *, config: TrainConfig, compute: Compute
) -> tuple[PreTrainedModel, Any, TensorFiles | None]:
    """The model with fp32 weights, or with a frozen base and an adapter, and peft's settings of that.

    With FSDP2 a model whose files name every weight as it does has no memory yet: each rank takes its part from the
    files, which come third. Any other model that will be sharded stays on the CPU.
    """
    if (previous.adapter is None and config.lora.rank and previous.updates) or (
        previous.adapter is not None and not config.lora.rank
    ):
        kind = "an adapter" if previous.adapter is not None else "all weights"
        raise UserError(
            f"{Path(previous.model).parent}: the run has trained {kind}; set lora.rank as before, "
            "or start a run of its own from its model/ folder"
        )
    device = "cpu" if compute.ranks.sharded else str(compute.device)
    if config.lora.rank:
        model, settings = load_adapted(previous, config)
        return model.to(device), settings, None
    folder = Path(previous.model)
    if compute.ranks.sharing is Sharing.FSDP and (folder / "config.json").is_file():
        with loadable(folder):
            files, model = TensorFiles(folder, "model"), hollow_model(folder)
        buffers = model.state_dict().keys() - {name for name, _ in model.named_parameters(remove_duplicate=False)}
        named = model.named_parameters()
        if not buffers and all(files.shapes.get(name) == full_shape(parameter) for name, parameter in named):
            return freeze_vision(model, config), None, files
    return freeze_vision(load_model(previous.model, dtype="float32", device=device), config), None, None


def _whole_model(stage: PreparedStage, previous: Checkpoint, state: Path) -> PreTrainedModel:
    """The model to export, made from the folder `state` if weights are sharded."""
    if not stage.compute.ranks.sharded:
        return stage.scorer.model
    model = freeze_vision(load_model(previous.model, dtype=stage.config.dtype), stage.config)
    load_state_weights(model, state, WEIGHTS)
    return model


def _run_updates(
    stage: PreparedStage, *, progress: TrainingProgress, seed: int, log: Callable[[Metrics], None] | None
) -> list[Metrics]:
    """Make all updates of the stage that the saved progress does not hold yet; returns the metrics of every update.

    Raises UserError if too many updates were skipped, and KeyboardInterrupt after the update in which Ctrl-C was
    pressed, with everything saved.
    """
    config, stats = stage.config, stage.sequences.stats
    groups = stats.groups(by_task=config.zero_advantage == "count_groups")
    size = config.sequences_per_update
    updates = math.ceil(len(stats.pieces) / size) if size else config.updates
    plan = plan_updates(len(groups), updates=updates, epochs=config.epochs, seed=seed)
    history = progress.restore(stage.state)
    if log is not None:
        for metrics in history:
            log({**metrics, "resumed": True})
    with DeferredInterrupts(stage.compute.ranks) as interrupts:
        for chosen in plan[len(history) :]:
            history.append(update(stage, [index for number in chosen for index in groups[number]]))
            if log is not None:
                log(history[-1])
            skipped = [str(one["update"]) for one in history if one["skipped"]]
            if len(skipped) > MAX_SKIPPED:
                raise UserError(
                    f"updates {', '.join(skipped)}: the gradient is not finite, more than {MAX_SKIPPED} times; "
                    "lower lr, or look at the advantages"
                )
            if any(stage.compute.ranks.gather(interrupts.asked)):
                progress.save(stage.state, history, now=True)
                raise KeyboardInterrupt
            if len(history) < len(plan):
                progress.save(stage.state, history)
    return history


def update(stage: PreparedStage, indices: Sequence[int]) -> Metrics:
    """One optimizer step on the sequences `indices`. If the gradient is not finite, it changes no weight.

    The step counts all the same, for the schedule and in the numbers of the updates, because its rows are used up.
    """
    config, state, started = stage.config, stage.state, time.perf_counter()
    stats, ranks = stage.sequences.stats, stage.compute.ranks
    tokens = sum(stats.loss_tokens[index] for index in indices)
    advantages: list[float] = []

    def whole_step() -> Iterator[TrainingSequence]:  # one at a time, because each is read from disk
        for index in indices:
            one = stage.sequences[index]
            advantages.extend(one.advantages)
            yield one

    weights = token_weights(whole_step(), config.aggregation, fixed_length=config.max_tokens)
    totals: list[dict[str, Tensor]] = []  # of each pass, on the device, so that nothing waits for it within a step
    passes = ranks.share(stage.passes(indices))
    for number, (part, counted) in enumerate(passes):
        chosen = [stage.sequences[index] for index in part]
        per_token, entropy, marks = forward(stage, part, chosen)
        weight = per_token.new_tensor([value for one in chosen for value in weights(one)])
        loss = (weight * per_token).sum()
        if config.entropy_coef:
            loss = loss - config.entropy_coef * entropy.sum() / tokens
        state.backend.backward(loss if counted else 0 * loss, last=number == len(passes) - 1)
        if counted:
            extremes = {"ratio_max": marks.pop("ratio").max(), "sampler_gap_max": marks["sampler_gap"].max()}
            sums = {key: value.sum() for key, value in marks.items()}
            totals.append({**sums, "loss": (tokens * weight * per_token.detach()).sum(), **extremes})
    if ranks.world > 1:
        every = ranks.gather([{key: value.cpu() for key, value in one.items()} for one in totals])
        totals = [one for own in every for one in own]
    lr = learning_rate(state.updates, config)
    norm = state.backend.step(lr=lr, max_norm=config.max_grad_norm)
    state.updates += 1
    # Sums over tokens become means, except for extremes and the count of extreme tokens.
    means: dict[str, float] = {"grad_norm": norm}
    for key in totals[0]:
        values = [one[key] for one in totals]
        means[key] = max(map(float, values)) if key in EXTREMES else float(sum(values)) / tokens
    lengths = [stats.lengths[index] for index in indices]
    return {
        "update": state.updates,
        # JSON has no other numbers than finite ones.
        **{key: value for key, value in means.items() if math.isfinite(value)},
        "extreme_tokens": round(means["extreme_tokens"] * tokens),
        "skipped": int(not norm < float("inf")),
        "lr": lr,
        "loss_tokens": tokens,
        "advantage_mean": float(np.mean(advantages)),
        "advantage_std": float(np.std(advantages)),
        "sequences": len(lengths),
        "tokens": sum(lengths),
        "length_mean": sum(lengths) / len(lengths),
        "length_max": max(lengths),
        **_pace(sum(lengths), time.perf_counter() - started),
    }


def forward(
    stage: PreparedStage, indices: Sequence[int], chosen: Sequence[TrainingSequence]
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Loss and entropy per token of one micro-batch, and per token the values that metrics are made of."""
    config = stage.config
    batch = stage.collated(chosen)
    logp, entropy = stage.state.backend.module(batch)
    inputs = LossInputs(
        logp=logp,
        logp_old=batch.logp_sampled if stage.old is None else torch.cat([stage.old[index] for index in indices]),
        logp_sampled=batch.logp_sampled,
        logp_ref=None if stage.reference is None else torch.cat([stage.reference[index] for index in indices]),
        advantage=batch.advantages,
        mask=torch.ones_like(batch.replies, dtype=torch.bool),
        reply=batch.replies,
        segment=batch.segments,
    )
    loss, marks = policy_loss(inputs, config)
    beyond = marks["extreme_tokens"].bool()
    if config.correction is not None:
        beyond = beyond | extreme(inputs.logp_old - inputs.logp_sampled)
        factor = correction(inputs, level=config.correction)
        loss = loss.masked_fill(beyond, 0.0) * factor
        marks["correction"] = factor
    if inputs.logp_ref is not None:
        kl = k3(logp, inputs.logp_ref)
        loss = loss + config.kl_coef * kl
        marks["kl"] = kl.detach()
        beyond = beyond | extreme(inputs.logp_ref - logp)
    gap = logp.detach() - batch.logp_sampled
    gap = gap.masked_fill(extreme(gap), 0.0).abs()
    marks["extreme_tokens"] = beyond.to(loss.dtype)
    return loss, entropy, {**marks, "entropy": entropy.detach(), "sampler_gap": gap}


def learning_rate(updates: int, config: TrainConfig) -> float:
    """The rate of the update after `updates` of the run: linear warm-up, then constant."""
    return config.rate * min(1.0, (updates + 1) / max(1, config.warmup_steps))


def _summary(history: Sequence[Metrics], *, gap: bool) -> Metrics:
    """Means over the updates, the largest ratio, and with `gap` the difference of sampler and trainer in the first
    update, which would also measure how far the model has come if replies of earlier models train.

    Skipped updates count among `updates` and in no mean.
    """
    done = [one for one in history if not one["skipped"]]
    renamed = {"sampler_gap": "sampler_gap_mean", "sampler_gap_max": "sampler_gap_max"}
    return {
        "updates": len(history),
        "skipped_updates": len(history) - len(done),
        **{key: sum(one[key] for one in done) / len(done) for key in AVERAGED if done and key in done[0]},
        "extreme_tokens": sum(one["extreme_tokens"] for one in history),
        **({"ratio_max": max(one["ratio_max"] for one in done)} if done else {}),
        **{name: history[0][key] for key, name in renamed.items() if gap and key in history[0]},
        "lr": history[-1]["lr"],
    }


def _pace(tokens: int, seconds: float) -> Metrics:
    return {"seconds": round(seconds, 3), "tokens_per_second": round(tokens / seconds, 1)}
