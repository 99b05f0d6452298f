"""The training stage: a checkpoint, sequences with advantages -> the next checkpoint.

    loss = sum over the loss tokens of an optimizer step of  w (f * surrogate + kl_coef * k3) - entropy_coef * H / N
surrogate: `losses`; k3 and f, the sampler's correction: `terms`; w: `aggregation`. The ratio is taken against the
sampler's own log-probabilities (`old: sampler`), or against those of the model as the stage found it (`trainer`).
A killed stage starts again at the last saved update: `<out>.partial/` holds it, and n updates in one go
equal k updates, a kill, and n - k.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rla.config.sections import TrainConfig
from rla.errors import UserError
from rla.models.load import load_model
from rla.processes import rank
from rla.training.aggregation import token_weights
from rla.training.batching import collate, micro_batches, plan_updates
from rla.training.checkpoint import Checkpoint, carry_over, open_checkpoint, refuse_existing, write_checkpoint
from rla.training.compute import Compute
from rla.training.data import TrainingSequence
from rla.training.logprobs import TokenScorer
from rla.training.losses import LossInputs, policy_loss
from rla.training.metrics import EXTREMES, Metrics, accumulate, counts, means, pace, speed, statistics, summary
from rla.training.progress import Progress, stage_digest
from rla.training.ranks import combined
from rla.training.speed import Work
from rla.training.state import TrainState, learning_rate, load_weights, make_optimizer
from rla.training.terms import correction, k3

NO_SIGNAL = "no sample has an advantage: the checkpoint is carried over unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the updates of a stage share, log-probabilities by sequence: `reference`, None without KL, and `old`, None
    where they are the sampler's.
    """

    config: TrainConfig
    compute: Compute
    scorer: TokenScorer
    state: TrainState
    sequences: Sequence[TrainingSequence]
    reference: list[Tensor] | None
    old: list[Tensor] | None
    work: Work


def train(
    *,
    model_folder: Path | str,
    out: Path,
    sequences: Sequence[TrainingSequence],
    config: TrainConfig,
    temperature: float,
    seed: int,
    log: Callable[[Metrics], None] | None = None,
    save_interval_s: float = 60.0,
    record: Mapping[str, Any] | None = None,
) -> Metrics:
    """Train and write the checkpoint `out`; returns the stage's metrics (`log` gets those of every update).

    `temperature` is the sampling temperature. Sequences longer than `config.max_tokens` are counted and left
    out. `record` is added to the checkpoint's manifest. Raises UserError where `out` exists, where token ids
    and model do not match, and when the gradient is not finite.
    """
    started = time.perf_counter()
    refuse_existing(out)
    previous = open_checkpoint(model_folder)
    kept = [sequence for sequence in sequences if sequence.longest <= config.max_tokens]
    found = counts(kept, too_long=len(sequences) - len(kept))
    if not any(any(sequence.advantages) for sequence in kept):
        metrics = {"updates": 0, "total_updates": previous.updates, **found, "note": NO_SIGNAL}
        if rank() == 0:
            carry_over(previous, out, metrics=metrics, record=record)
        return metrics
    digest = stage_digest(previous, kept, config=config, temperature=temperature, seed=seed)
    progress = Progress(out=out, digest=digest, interval_s=save_interval_s)
    stage = prepare(previous, kept, config=config, temperature=temperature, seed=seed)
    history = run_updates(stage, progress=progress, seed=seed, log=log)
    took = pace(found["tokens"], time.perf_counter() - started)
    metrics = {**summary(history), "total_updates": stage.state.updates, **found, **took}
    if stage.compute.ranks.first:
        finish(stage, out, previous=previous, metrics=metrics, history=history, record=record)
        progress.clear()
    stage.compute.ranks.wait()
    return metrics


def prepare(
    previous: Checkpoint,
    sequences: Sequence[TrainingSequence],
    *,
    config: TrainConfig,
    temperature: float,
    seed: int,
) -> Stage:
    """Model, optimizer and reference log-probabilities at the start of the stage."""
    compute = Compute.choose(config)
    torch.manual_seed(seed)
    model = load_model(previous.model, dtype="float32", device=str(compute.device))
    highest = max(max(sequence.token_ids) for sequence in sequences)
    if highest >= model.config.get_text_config().vocab_size:
        raise UserError(f"{previous.model}: knows no token {highest}; train the model that made the trajectories")
    if config.gradient_checkpointing:
        model.train()
        model.gradient_checkpointing_enable()
    scorer = TokenScorer(model, temperature=temperature, train_entropy=config.entropy_coef != 0)
    state = TrainState(model=model, optimizer=make_optimizer(model, config))
    reference = None
    # The reference borrows the model before the state's own weights arrive: two copies never exist.
    from_initial = config.kl_coef != 0 and config.kl_reference == "initial"
    if from_initial:
        if previous.reference is not None:
            load_weights(model, previous.reference)
        reference = score(scorer, sequences, compute=compute)
    if previous.state is not None:
        state.load(previous.state)
    from_previous = config.kl_coef != 0 and not from_initial
    current = score(scorer, sequences, compute=compute) if from_previous or config.old == "trainer" else None
    return Stage(
        config=config,
        compute=compute,
        scorer=scorer,
        state=state,
        sequences=sequences,
        reference=current if from_previous else reference,
        old=current if config.old == "trainer" else None,
        work=Work.of(model),
    )


@torch.no_grad()
def score(scorer: TokenScorer, sequences: Sequence[TrainingSequence], *, compute: Compute) -> list[Tensor]:
    """The log-probabilities of every sequence's loss tokens, in order."""
    scores: dict[int, Tensor] = {}
    lengths = [len(sequence.token_ids) for sequence in sequences]
    parts = micro_batches(lengths, range(len(sequences)), tokens_per_batch=compute.tokens_per_batch)
    for indices in compute.ranks.share(parts):
        with compute.autocast():
            logp, _ = scorer(collate(sequences, indices, device=compute.device))
        scores.update(zip(indices, logp.split([len(sequences[index].positions) for index in indices]), strict=True))
    if compute.ranks.world > 1:
        found = compute.ranks.gather({index: part.cpu() for index, part in scores.items()})
        scores = {index: part.to(compute.device) for one in found for index, part in one.items()}
    return [scores[index] for index in range(len(sequences))]


def run_updates(stage: Stage, *, progress: Progress, seed: int, log: Callable[[Metrics], None] | None) -> list[Metrics]:
    """All updates of the stage that the saved progress does not hold yet; the metrics of every update."""
    config = stage.config
    plan = plan_updates(len(stage.sequences), updates=config.updates, epochs=config.epochs, seed=seed)
    ranks = stage.compute.ranks
    history = progress.restore(stage.state)
    ranks.wait()
    if ranks.first and not history:
        progress.clear()
    for indices in plan[len(history) :]:
        metrics = update(stage, indices)
        history.append(metrics)
        if log is not None:
            log(metrics)
        if ranks.first and len(history) < len(plan):
            progress.save(stage.state, history)
    return history


def update(stage: Stage, indices: Sequence[int]) -> Metrics:
    """One optimizer step on the sequences `indices`."""
    config, state, started = stage.config, stage.state, time.perf_counter()
    chosen = [stage.sequences[index] for index in indices]
    tokens = sum(len(one.positions) for one in chosen)
    shares = token_weights(chosen, config.aggregation, fixed_length=config.fixed_length)
    weights = dict(zip(indices, shares, strict=True))
    lengths = [len(sequence.token_ids) for sequence in stage.sequences]
    totals: dict[str, Tensor] = {}
    ranks = stage.compute.ranks
    for part in ranks.share(micro_batches(lengths, indices, tokens_per_batch=stage.compute.tokens_per_batch)):
        per_token, entropy, marks = forward(stage, part)
        weight = per_token.new_tensor([value for index in part for value in weights[index]])
        loss = (weight * per_token).sum()
        if config.entropy_coef:
            loss = loss - config.entropy_coef * entropy.sum() / tokens
        loss.backward()
        accumulate(totals, {**marks, "loss": tokens * weight * per_token.detach()})
    parameters = [parameter for group in state.optimizer.param_groups for parameter in group["params"]]
    ranks.add_gradients(parameters)
    if ranks.world > 1:
        every = ranks.gather({key: value.cpu() for key, value in totals.items()})
        totals = combined(every, EXTREMES)
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, config.max_grad_norm))
    if not norm < float("inf"):
        raise UserError(f"update {state.updates + 1}: the gradient is not finite; lower lr or look at the advantages")
    lr = learning_rate(state.updates, config)
    for group in state.optimizer.param_groups:
        group["lr"] = lr
    state.optimizer.step()
    state.optimizer.zero_grad(set_to_none=True)
    state.updates += 1
    return {
        "update": state.updates,
        **means(totals, tokens=tokens),
        "grad_norm": norm,
        "lr": lr,
        **statistics(chosen),
        **speed(stage.work, stage.compute, chosen, time.perf_counter() - started),
    }


def forward(stage: Stage, indices: Sequence[int]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Loss and entropy per token of one micro-batch, and per token what the metrics are made of."""
    config = stage.config
    batch = collate(stage.sequences, indices, device=stage.compute.device)
    with stage.compute.autocast():
        logp, entropy = stage.scorer(batch)
    inputs = LossInputs(
        logp=logp,
        logp_old=batch.logp_sampled if stage.old is None else torch.cat([stage.old[index] for index in indices]),
        logp_sampled=batch.logp_sampled,
        logp_ref=None if stage.reference is None else torch.cat([stage.reference[index] for index in indices]),
        advantage=batch.advantages,
        mask=torch.ones_like(batch.replies, dtype=torch.bool),
        reply=batch.replies,
    )
    loss, marks = policy_loss(inputs, config)
    if config.correction != "none":
        factor = correction(inputs, level=config.correction, cap=config.correction_cap)
        loss = loss * factor
        marks["correction"] = factor
    if inputs.logp_ref is not None:
        kl = k3(logp, inputs.logp_ref)
        loss = loss + config.kl_coef * kl
        marks["kl"] = kl.detach()
    gap = (logp.detach() - batch.logp_sampled).abs()
    return loss, entropy, {**marks, "entropy": entropy.detach(), "sampler_gap": gap}


def finish(
    stage: Stage,
    out: Path,
    *,
    previous: Checkpoint,
    metrics: Metrics,
    history: Sequence[Metrics],
    record: Mapping[str, Any] | None,
) -> None:
    """Write the checkpoint: the stage is over, its model is converted for export."""
    write_checkpoint(
        out,
        previous=previous,
        model=stage.scorer.model,
        dtype=stage.config.dtype,
        state=stage.state,
        metrics=metrics,
        history=history,
        record=record,
    )
