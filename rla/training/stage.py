"""`train-policy` and `train-rm`: open the inputs, and train here, or with the launcher that `launch.training` names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rla.config.training import TrainConfig
from rla.errors import UserError
from rla.llm.factory import free_memory
from rla.models.checkpoint import METRICS, model_folder, verify_model
from rla.models.load import refuse_other_tokenizer
from rla.pipeline.context import StageContext, called_again
from rla.pipeline.origins import origin, policy_of, refuse_stale
from rla.plugins import need_package
from rla.processes import launch, launched, launcher, world
from rla.seeds import derive
from rla.store.reading import read_manifest, stream_rows
from rla.store.record import read_json
from rla.training.checkpoints import finished_checkpoint, open_to_train

if TYPE_CHECKING:
    from rla.training.batches import SequenceStats
    from rla.training.sequences import TrainingSequence


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """One call of a training stage, for a launcher."""

    ctx: StageContext  # names the path of every option
    out: Path  # the checkpoint to write
    reads: tuple[Path, ...]  # folders that the stage reads
    configuration: Path  # of accelerate: how the processes share the model


class Launcher(Protocol):
    """Trains on some processes; a launcher of another package is the dataclass of `launch.own`."""

    def train(self, job: TrainingJob) -> None:
        """Return when the checkpoint is at `job.out`.

        Each process gets the variables RANK and WORLD_SIZE, and accelerate's for `job.configuration`, and runs the
        stage of `job.ctx` again. Raises UserError as the stage does.
        """


class Rows(NamedTuple):
    """The columns of a shard that training needs."""

    folder: Path
    kind: str
    columns: tuple[str, ...]


def joined_sequences(
    make: Callable[..., Iterator[TrainingSequence]], tokens: Rows, rewards: Rows, *, config: TrainConfig, seed: int
) -> Iterator[TrainingSequence]:
    """The sequences that `make` (of `rla.training.sequences`) makes of the rows of `tokens` and their rewards.

    `rewards` names the columns of the key. A UserError in the rows names both folders.
    """

    def rewarded() -> Iterator[dict[str, Any]]:
        """An advantage of zero has no gradient; `zero_advantage: count` keeps it for the updates and means."""
        found = stream_rows(rewards.folder, rewards.kind, [*rewards.columns, "advantage"])
        return (row for row in found if row["advantage"] or config.zero_advantage == "count")

    wanted = {row["trajectory_id"] for row in rewarded()}
    rows = stream_rows(tokens.folder, tokens.kind, tokens.columns, keys=wanted)
    try:
        yield from make(rows, rewarded(), max_samples=config.max_samples, seed=seed)
    except UserError as error:
        raise UserError(f"{tokens.folder} with {rewards.folder}: {error}") from error


def train_stage(
    ctx: StageContext,
    *,
    checkpoint: str,
    config: TrainConfig,
    temperature: float,
    data: tuple[Path, ...],
    sequences: Callable[[], Iterator[TrainingSequence]],
    images: Path | None = None,
    earlier: Sequence[tuple[Path, Path]] = (),
) -> dict[str, Any]:
    """Train `checkpoint` (an option's name) on `sequences`, unless a finished checkpoint of the same origin is there.

    The first folder of `data` is the shard with the token ids, made with the checkpoint's tokenizer. `images`: the
    shard with the pictures of the sequences. `earlier`: (token ids, rewards) of earlier iterations that train as well.
    """
    shards = (*data, *chain(*earlier))
    for shard in shards:
        read_manifest(shard)  # before a model is made for nothing
    for tokens, made in chain(((data[0], rewards) for rewards in data[1:]), earlier):
        refuse_stale(made, source=tokens)
    source, out = policy_of(ctx, checkpoint, checkpoint), ctx.path("out")
    made_from = origin(ctx, [source, *shards])
    marker = {"origin": made_from.as_json(), **made_from.named()}

    def finished() -> bool:
        return finished_checkpoint(out, marker, overwrite=ctx.overwrite, folders=made_from.folders)

    if not _decided_by_first(finished):
        _check_inputs(config, source, [data[0], *(tokens for tokens, _ in earlier)])
        configuration = launcher(ctx.config)
        if not launched():
            free_memory(ctx.config.generator)

        from rla.tracking import Trackers

        with Trackers(config=ctx.config.tracking, run=ctx.run, stage=ctx.spec.name) as trackers:

            def log(update: dict[str, Any]) -> None:
                ctx.progress.advance(loss=update.get("loss", math.nan))
                trackers.log(update)

            if configuration is None:  # also in a rank of a launcher
                from rla.training.loop import train

                ctx.progress.start(ctx.spec.name, total=config.updates * config.epochs)
                train(
                    model_folder=source,
                    out=out,
                    sequences=sequences() if config.enabled else (),
                    config=config,
                    temperature=temperature,
                    seed=derive(ctx.config.seed, ctx.spec.name, ctx.iteration),
                    record=marker,
                    log=log,
                    launch=ctx.config.launch,
                    replace=ctx.overwrite,
                    check=lambda stats: _refuse_long(stats, ctx, config, data[0]),
                    images=images,
                    earlier=bool(earlier),
                )
            else:
                options = [option for option, _ in (*ctx.spec.reads, *ctx.spec.writes)]
                paths = {option: ctx.path(option) for option in options} | {checkpoint: source}
                again = replace(ctx, paths=paths)
                own: Launcher | None = ctx.config.launch.own
                if own is None:
                    with called_again(again, paths) as arguments:
                        launch(configuration, arguments)
                else:
                    own.train(TrainingJob(ctx=again, out=out, reads=(source, *shards), configuration=configuration))
    return {checkpoint: str(out), **read_json(out / METRICS)}


def _check_inputs(config: TrainConfig, source: Path, shards: Sequence[Path]) -> None:
    """Check the inputs before rows are read and a model is loaded; `shards` have the token ids. Raises UserError."""
    if not config.enabled:
        return
    verify_model(model_folder(source), weights=False)
    for shard in shards:
        refuse_other_tokenizer(model_folder(source), recorded=read_manifest(shard).get("tokenizer"), shard=shard)
    open_to_train(source)
    if config.lora.rank:
        need_package("peft", install="rla[lora]", why="lora.rank is set")


def _refuse_long(stats: SequenceStats, ctx: StageContext, config: TrainConfig, shard: Path) -> None:
    """Raises UserError if more than a stated share of the replies are too long to train."""
    limit = ctx.config.rollout.max_failed_share
    if stats.replies_too_long > limit * stats.replies:
        key = f"{ctx.spec.name.replace('-', '_')}.max_tokens"
        raise UserError(
            f"{shard}: {stats.replies_too_long} of {stats.replies} replies end beyond {key} = {config.max_tokens} and "
            f"would not train, more than rollout.max_failed_share = {limit}; raise {key}, or the share"
        )


def _decided_by_first(question: Callable[[], bool]) -> bool:
    """The answer of rank 0, on every rank."""
    if world() == 1:
        return question()
    from rla.training.shared import Ranks

    ranks = Ranks.join()
    return ranks.broadcast(question() if ranks.first else None)
