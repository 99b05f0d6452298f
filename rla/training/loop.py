"""The training stage: a checkpoint, sequences with advantages -> the next checkpoint.

    loss = sum over the loss tokens of an optimizer step of  w (f * surrogate + kl_coef * k3) - entropy_coef * H / N
surrogate: `losses`; k3 and f, the sampler's correction: `terms`; w: `aggregation`. The ratio is taken against the
sampler's own log-probabilities (`old: sampler`), or against those of the model as the stage found it (`trainer`).
A killed stage goes on from the last update in `<out>.partial/`, with the same result. Ctrl-C saves what was made.
"""

from __future__ import annotations

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
from rla.store.images import stream_images
from rla.training.batching import collate, plan_updates, steps_per_epoch
from rla.training.checkpoints import (
    carry_over,
    open_to_train,
    record_together,
    refuse_existing,
    verify_together,
    write_checkpoint,
)
from rla.training.data import TrainingSequence
from rla.training.losses import LossInputs, correction, extreme, k3, masked, policy_loss, token_weights
from rla.training.metrics import EXTREMES, Metrics, accumulate, counts, finite, means, pace, speed, statistics, summary
from rla.training.prepare import PreparedStage, exported, prepare
from rla.training.ranks import Compute, Ranks, combined
from rla.training.resume import HeldInterrupts, TrainingProgress, stage_digest
from rla.training.sequence_file import (
    Facts,
    StoredImages,
    StoredSequences,
    unfinished_sequences,
    write_image_file,
    write_sequences,
)
from rla.training.state import learning_rate, random_state, set_random_state

NO_SIGNAL = "no sample has an advantage: the checkpoint is carried over unchanged"


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
    check: Callable[[Facts], None] | None = None,
    launch: LaunchConfig | None = None,
    replace: bool = False,
    images: Path | None = None,
    earlier: bool = False,
) -> Metrics:
    """Train and write the checkpoint `out`; returns the stage's metrics (`log` gets those of every update).

    `sequences` are consumed once, to a file beside `out`. `temperature` is the sampling temperature. Replies that end
    beyond `config.max_tokens` are counted and left out; `check` may refuse what is left, before a model is loaded.
    `record` is added to the checkpoint's manifest; `launch` says how several processes share the model. With `replace`
    a checkpoint at `out` stays until the new one is complete. `images`: the shard that has the pictures of the
    sequences, where they show any. `earlier`: there are replies of earlier models among them. Raises UserError where
    `out` exists otherwise, where token ids and model do not match, where a file of the checkpoint changed since it was
    written, and where the gradient is not finite in more than `config.max_skipped` updates.
    """
    started = time.perf_counter()
    config = protected(config, half=False)  # a params file has decided already
    ranks = Ranks.join()
    refuse_existing(out, replace=replace)
    previous = open_to_train(model_folder)
    progress = TrainingProgress(out=out, interval_s=save_interval_s)
    compute = Compute.choose(config, ranks, launch)
    with (
        progress.alone(first=ranks.first),
        stored(progress.folder / "sequences.arrow", sequences, config=config, compute=compute, images=images) as kept,
    ):
        found = counts(kept.facts)
        if check is not None:
            check(kept.facts)
        if not kept.facts.signal and not (config.zero_advantage == "count" and kept.facts.pieces):
            metrics = {"updates": 0, "total_updates": previous.updates, **found, "note": NO_SIGNAL}
            if ranks.first:
                carry_over(previous, out, metrics=metrics, record=record, replace=replace)
            return metrics
        progress.digest = stage_digest(previous, kept.facts.digest, config=config, temperature=temperature, seed=seed)
        verify_together(previous, ranks)
        stage = prepare(previous, kept, config=config, temperature=temperature, seed=seed, compute=compute)
        history = run_updates(stage, progress=progress, seed=seed, log=log)
        took = pace(found["tokens"], time.perf_counter() - started)
        metrics = {**summary(history, gap=not earlier), "total_updates": stage.state.updates, **found, **took}
        folder = progress.last_state(clean=ranks.first)
        stage.state.save(folder)
        records = record_together(folder, ranks)
        if ranks.first:
            model, adapter = exported(stage, previous, folder)
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
        ranks.wait()
    return metrics


@contextmanager
def stored(
    file: Path,
    sequences: Iterable[TrainingSequence],
    *,
    config: TrainConfig,
    compute: Compute,
    images: Path | None = None,
) -> Iterator[StoredSequences]:
    """The stage's sequences in a file, and their pictures in another: the first rank writes them, all read them."""
    ranks, own = compute.ranks, None
    shown = file.with_name("images.arrow")
    with ExitStack() as held:
        if ranks.first:
            for name in (file, unfinished_sequences(file), shown, unfinished_sequences(shown)):
                held.callback(name.unlink, missing_ok=True)
            own = write_sequences(file, sequences, max_tokens=config.max_tokens, budget=compute.tokens_per_batch)
            if own.pictures and images is not None:
                write_image_file(shown, stream_images(images, own.pictures))
        facts = ranks.tell(own)
        pngs = StoredImages(shown) if facts.pictures and images is not None else None
        if pngs is not None:
            held.callback(pngs.close)
        kept = StoredSequences(file, facts, images=pngs)
        held.callback(kept.close)
        yield kept


def run_updates(
    stage: PreparedStage, *, progress: TrainingProgress, seed: int, log: Callable[[Metrics], None] | None
) -> list[Metrics]:
    """All updates of the stage that the saved progress does not hold yet; the metrics of every update."""
    config = stage.config
    facts, asked = stage.sequences.facts, config.sequences_per_update
    groups = facts.task_groups() if config.whole_groups else facts.groups()
    updates = steps_per_epoch(len(facts.pieces), updates=config.updates, sequences_per_update=asked)
    plan = plan_updates(len(groups), updates=updates, epochs=config.epochs, seed=seed)
    history = progress.restore(stage.state)
    stage.compute.ranks.wait()
    if stage.compute.ranks.first and not history:
        progress.forget()
    progress.begin(loading_s=stage.loading_s)
    alone = stage.compute.ranks.world == 1  # ranks end together, after an update
    with HeldInterrupts(stage.compute.ranks) as interrupts:
        for chosen in plan[len(history) :]:
            indices = [index for number in chosen for index in groups[number]]
            metrics = update(stage, indices, given_up=lambda: alone and interrupts.asked)
            if metrics is not None:
                history.append(metrics)
                if log is not None:
                    log(metrics)
                refuse_skipped(history, config)
            if interrupts.heard():
                progress.save(stage.state, history, now=True)
                raise KeyboardInterrupt
            if len(history) < len(plan):
                progress.save(stage.state, history)
    return history


def refuse_skipped(history: Sequence[Metrics], config: TrainConfig) -> None:
    """Raises UserError where more updates than a stated number had a gradient that is not finite."""
    skipped = [one["update"] for one in history if one["skipped"]]
    if len(skipped) > config.max_skipped:
        raise UserError(
            f"updates {', '.join(map(str, skipped))}: the gradient is not finite, in more updates than max_skipped = "
            f"{config.max_skipped}; lower lr, look at the advantages, or raise max_skipped"
        )


def update(
    stage: PreparedStage, indices: Sequence[int], *, given_up: Callable[[], bool] = lambda: False
) -> Metrics | None:
    """One optimizer step on the sequences `indices`. If the gradient is not finite, it changes no weight.

    The step counts all the same, for the schedule and in the numbers of the updates: the rows behind it are used up.
    Returns None, with the state as it was, if `given_up` before one of the forward passes.
    """
    config, state, started = stage.config, stage.state, time.perf_counter()
    facts, ranks = stage.sequences.facts, stage.compute.ranks
    tokens = sum(facts.loss_tokens[index] for index in indices)
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
        state.optimizing.backward(loss if counted else 0 * loss, last=number == len(passes) - 1)
        if counted:
            accumulate(totals, {**marks, "loss": tokens * weight * per_token.detach()})
    if ranks.world > 1:
        every = ranks.gather({key: value.cpu() for key, value in totals.items()})
        totals = combined(every, EXTREMES)
    lr = learning_rate(state.updates, config)
    norm = state.optimizing.step(lr=lr, max_norm=config.max_grad_norm)
    state.updates += 1
    return {
        "update": state.updates,
        **finite({**means(totals, tokens=tokens), "grad_norm": norm}),
        "skipped": int(not norm < float("inf")),
        "lr": lr,
        **statistics(stage.sequences[index] for index in indices),
        **speed(stage.work, stage.compute, facts, indices, time.perf_counter() - started),
    }


def forward(
    stage: PreparedStage, indices: Sequence[int], chosen: Sequence[TrainingSequence]
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Loss and entropy per token of one micro-batch, and per token what the metrics are made of."""
    config = stage.config
    batch = collate(chosen, device=stage.compute.device, packed=stage.scorer.packs, eyes=stage.eyes)
    logp, entropy = stage.state.optimizing.module(batch)
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
        factor = correction(inputs, level=config.correction, cap=config.correction_cap)
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
