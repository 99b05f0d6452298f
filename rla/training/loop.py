"""The training stage: a checkpoint and sequences with advantages -> the next checkpoint.

    loss = sum over the loss tokens of an optimizer step of  w (f * surrogate + kl_coef * k3) - entropy_coef * H / N

`losses` defines the surrogate, the token weights w, the sampler's correction f and k3. The ratio is taken against the
sampler's own log-probabilities (`old: sampler`), or those of the model at the start of the stage (`old: trainer`). A
killed stage goes on from the last update in `<out>.partial/`, with the same result. Ctrl-C saves the updates so far.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rla.config.sections import LaunchConfig
from rla.config.training import TrainConfig, protected
from rla.errors import UserError
from rla.pictures.encoder import StoredImages, write_images
from rla.pictures.shard import stream_images
from rla.training.batches import (
    SequenceStats,
    StoredSequences,
    collate,
    plan_updates,
    steps_per_epoch,
    write_sequences,
)
from rla.training.checkpoints import (
    carry_over,
    open_to_train,
    record_together,
    refuse_existing,
    verify_together,
    write_checkpoint,
)
from rla.training.cost import matrix_rate
from rla.training.losses import LossInputs, correction, extreme, k3, masked, policy_loss, token_weights
from rla.training.prepare import PreparedStage, export_weights, prepare
from rla.training.sequences import TrainingSequence
from rla.training.shared import Compute, Ranks
from rla.training.state import DeferredInterrupts, TrainingProgress, random_state, set_random_state, stage_digest

Metrics = dict[str, Any]
NO_SIGNAL = "no sample has an advantage: the checkpoint is carried over unchanged"
MAX_SKIPPED = 3  # updates of a stage whose gradient may be not finite
EXTREMES = ("ratio_max", "sampler_gap_max")
AVERAGED = (
    "loss",
    "kl",
    "clip_low_share",
    "clip_high_share",
    "dual_clip_share",
    "correction",
    "masked_share",
    "approx_kl",
    "entropy",
    "grad_norm",
)


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
    check: Callable[[SequenceStats], None] | None = None,
    launch: LaunchConfig | None = None,
    replace: bool = False,
    images: Path | None = None,
    earlier: bool = False,
) -> Metrics:
    """Train and write the checkpoint `out`; returns the stage's metrics (`log` gets those of every update).

    `sequences` are consumed once, to a file beside `out`. `temperature` is the sampling temperature. Replies that end
    beyond `config.max_tokens` are counted and left out; `check` may refuse the rest before a model is loaded. `record`
    is added to the checkpoint's manifest; `launch` says how several processes share the model. With `replace` a
    checkpoint at `out` stays until the new one is complete. `images`: the shard with the pictures of the sequences.
    `earlier`: some replies are those of earlier models. Raises UserError if `out` exists otherwise, if token ids and
    model do not match, if a file of the checkpoint is damaged, and if more than `MAX_SKIPPED` gradients are not finite.
    """
    started = time.perf_counter()
    config = protected(config, half=False)  # a params file has decided already
    ranks = Ranks.join()
    compute = Compute.choose(config, ranks, launch)
    refuse_existing(out, replace=replace)
    previous = open_to_train(model_folder)
    progress = TrainingProgress(out=out, interval_s=save_interval_s)
    with (
        progress.locked(first=ranks.first),
        stored(progress.folder, sequences, config=config, compute=compute, images=images) as kept,
    ):
        stats = kept.stats
        found: Metrics = {
            "sequences": len(stats.lengths),
            "too_long": stats.too_long,
            "shortened": stats.shortened,
            "replies": stats.replies,
            "replies_too_long": stats.replies_too_long,
            "tokens": sum(stats.lengths),
            "loss_tokens": sum(stats.loss_tokens),
        }
        if check is not None:
            check(stats)
        if not stats.signal and not (config.zero_advantage == "count" and stats.pieces):
            metrics = {"updates": 0, "total_updates": previous.updates, **found, "note": NO_SIGNAL}
            if ranks.first:
                carry_over(previous, out, metrics=metrics, record=record, replace=replace)
            ranks.barrier()
            return metrics
        progress.digest = stage_digest(previous, stats.digest, config=config, temperature=temperature, seed=seed)
        verify_together(previous, ranks)
        stage = prepare(previous, kept, config=config, temperature=temperature, seed=seed, compute=compute)
        history = run_updates(stage, progress=progress, seed=seed, log=log)
        speed = pace(found["tokens"], time.perf_counter() - started)
        metrics = {**summary(history, gap=not earlier), "total_updates": stage.state.updates, **found, **speed}
        folder = progress.final_folder(clean=ranks.first)
        stage.state.save(folder)
        records = record_together(folder, ranks)
        if ranks.first:
            model, adapter = export_weights(stage, previous, folder)
            write_checkpoint(
                out,
                previous=previous,
                model=model,
                dtype=config.dtype,
                state=folder,
                recorded=records,
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
def stored(
    folder: Path, sequences: Iterable[TrainingSequence], *, config: TrainConfig, compute: Compute, images: Path | None
) -> Iterator[StoredSequences]:
    """The stage's sequences in a file, and their pictures in another: rank 0 writes them, all ranks read them."""
    ranks, stats = compute.ranks, None
    file, pictures = folder / "sequences.arrow", folder / "images.arrow"
    with ExitStack() as held:
        if ranks.first:
            for path in (file, pictures):
                held.callback(path.unlink, missing_ok=True)
                held.callback(path.with_suffix(".tmp").unlink, missing_ok=True)
            stats = write_sequences(file, sequences, max_tokens=config.max_tokens, budget=compute.tokens_per_batch)
            if stats.pictures and images is not None:
                write_images(pictures, stream_images(images, stats.pictures))
        stats = ranks.broadcast(stats)
        pngs = StoredImages(pictures) if stats.pictures and images is not None else None
        if pngs is not None:
            held.callback(pngs.close)
        kept = StoredSequences(file, stats, images=pngs)
        held.callback(kept.close)
        yield kept


def run_updates(
    stage: PreparedStage, *, progress: TrainingProgress, seed: int, log: Callable[[Metrics], None] | None
) -> list[Metrics]:
    """Make all updates of the stage that the saved progress does not hold yet; returns the metrics of every update.

    Raises UserError if too many updates were skipped, and KeyboardInterrupt after Ctrl-C, with everything saved.
    """
    config, stats = stage.config, stage.sequences.stats
    groups = stats.groups(by_task=config.whole_groups)
    updates = steps_per_epoch(
        len(stats.pieces), updates=config.updates, sequences_per_update=config.sequences_per_update
    )
    plan = plan_updates(len(groups), updates=updates, epochs=config.epochs, seed=seed)
    history = progress.restore(stage.state)
    progress.begin(loading_s=stage.loading_s)
    alone = stage.compute.ranks.world == 1  # several ranks stop together, after an update
    with DeferredInterrupts(stage.compute.ranks) as interrupts:
        for chosen in plan[len(history) :]:
            indices = [index for number in chosen for index in groups[number]]
            metrics = update(stage, indices, given_up=lambda: alone and interrupts.asked)
            if metrics is not None:
                history.append(metrics)
                if log is not None:
                    log(metrics)
                skipped = [str(one["update"]) for one in history if one["skipped"]]
                if len(skipped) > MAX_SKIPPED:
                    raise UserError(
                        f"updates {', '.join(skipped)}: the gradient is not finite, more than {MAX_SKIPPED} times; "
                        "lower lr, or look at the advantages"
                    )
            if interrupts.on_any_rank():
                progress.save(stage.state, history, now=True)
                raise KeyboardInterrupt
            if len(history) < len(plan):
                progress.save(stage.state, history)
    return history


def update(
    stage: PreparedStage, indices: Sequence[int], *, given_up: Callable[[], bool] = lambda: False
) -> Metrics | None:
    """One optimizer step on the sequences `indices`. If the gradient is not finite, it changes no weight.

    The step counts all the same, for the schedule and in the numbers of the updates, because its rows are used up.
    Returns None, with the state as it was, if `given_up` before one of the forward passes.
    """
    config, state, started = stage.config, stage.state, time.perf_counter()
    stats, ranks = stage.sequences.stats, stage.compute.ranks
    tokens = sum(stats.loss_tokens[index] for index in indices)
    weights = token_weights(
        (stage.sequences[index] for index in indices), config.aggregation, fixed_length=config.fixed_length
    )
    totals: dict[str, Tensor] = {}
    before = random_state()
    passes = ranks.share(stage.passes(indices))
    for number, (part, counted) in enumerate(passes):
        if given_up():
            set_random_state(before)
            return None
        chosen = [stage.sequences[index] for index in part]
        per_token, entropy, marks = forward(stage, part, chosen)
        weight = per_token.new_tensor([value for one in chosen for value in weights(one)])
        loss = (weight * per_token).sum()
        if config.entropy_coef:
            loss = loss - config.entropy_coef * entropy.sum() / tokens
        state.backend.backward(loss if counted else 0 * loss, last=number == len(passes) - 1)
        if counted:
            accumulate(totals, {**marks, "loss": tokens * weight * per_token.detach()})
    if ranks.world > 1:
        every, totals = ranks.gather({key: value.cpu() for key, value in totals.items()}), {}
        for key, value in (item for one in every for item in one.items()):
            add_total(totals, key, value)
    lr = learning_rate(state.updates, config)
    norm = state.backend.step(lr=lr, max_norm=config.max_grad_norm)
    state.updates += 1
    # Sums over tokens become means, except for extremes and the count of extreme tokens.
    means = {key: float(value) if key in EXTREMES else float(value) / tokens for key, value in totals.items()}
    means["extreme_tokens"] = int(totals["extreme_tokens"])
    seconds = time.perf_counter() - started
    lengths = [stats.lengths[index] for index in indices]
    pairs = sum(stats.pairs[index] for index in indices)
    flops = stage.work.flops(tokens=sum(lengths), loss_tokens=tokens, pairs=pairs)
    rate = matrix_rate(stage.compute.device.type, torch.bfloat16 if stage.compute.mixed else torch.float32)
    return {
        "update": state.updates,
        # JSON has no other numbers than finite ones.
        **{key: value for key, value in {**means, "grad_norm": norm}.items() if math.isfinite(value)},
        "skipped": int(not norm < float("inf")),
        "lr": lr,
        **advantage_statistics(stage.sequences[index] for index in indices),
        "sequences": len(lengths),
        "tokens": sum(lengths),
        "length_mean": sum(lengths) / len(lengths),
        "length_max": max(lengths),
        **pace(sum(lengths), seconds),
        "flop_utilisation": round(flops / seconds / (rate * ranks.world), 4),
    }


def forward(
    stage: PreparedStage, indices: Sequence[int], chosen: Sequence[TrainingSequence]
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Loss and entropy per token of one micro-batch, and per token the values that metrics are made of."""
    config = stage.config
    batch = collate(chosen, device=stage.compute.device, packed=stage.scorer.packs, vision=stage.vision)
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
    if config.correction != "none" or config.mask_low or config.mask_high:
        beyond = beyond | extreme(inputs.logp_old - inputs.logp_sampled)
        loss = loss.masked_fill(beyond, 0.0)
    if config.correction != "none":
        factor = correction(inputs, level=config.correction)
        loss = loss * factor
        marks["correction"] = factor
    if config.mask_low or config.mask_high:
        outside = masked(inputs, level=config.correction, low=config.mask_low, high=config.mask_high)
        loss = loss.masked_fill(outside, 0.0)
        marks["masked_share"] = outside.to(loss.dtype)
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
    """The rate of the update after `updates` of the run: linear warm-up, then constant, or with `lr_steps` linearly
    down to zero at that update of the run.
    """
    warm = config.rate * min(1.0, (updates + 1) / max(1, config.warmup_steps))
    if not config.lr_steps or updates < config.warmup_steps:
        return warm
    done = min(1.0, (updates - config.warmup_steps) / max(1, config.lr_steps - config.warmup_steps))
    return config.rate * (1 - done)


def accumulate(totals: dict[str, Tensor], marks: dict[str, Tensor]) -> None:
    """Add sums and keep extremes on the device, so that nothing waits for it within a step."""
    for key, value in marks.items():
        if key != "ratio":
            add_total(totals, key, value.sum())
    add_total(totals, "ratio_max", marks["ratio"].max())
    add_total(totals, "sampler_gap_max", marks["sampler_gap"].max())


def add_total(totals: dict[str, Tensor], key: str, value: Tensor) -> None:
    if key not in totals:
        totals[key] = value
    else:
        totals[key] = torch.maximum(totals[key], value) if key in EXTREMES else totals[key] + value


def advantage_statistics(sequences: Iterable[TrainingSequence]) -> Metrics:
    """Mean and standard deviation over the loss tokens."""
    count, total, squares = 0, 0.0, 0.0
    for one in sequences:
        count += len(one.advantages)
        total += sum(one.advantages)
        squares += sum(value * value for value in one.advantages)
    mean = total / count
    std = max(0.0, squares / count - mean * mean) ** 0.5
    return {"loss_tokens": count, "advantage_mean": mean, "advantage_std": std}


def summary(history: Sequence[Metrics], *, gap: bool = True) -> Metrics:
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


def pace(tokens: int, seconds: float) -> Metrics:
    return {"seconds": round(seconds, 3), "tokens_per_second": round(tokens / seconds, 1)}
