"""What `train-policy` and `train-rm` share: one checkpoint in, sequences, one checkpoint out."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rla.config.training import TrainConfig
from rla.errors import UserError
from rla.llm.factory import free_memory
from rla.models.checkpoint import MANIFEST, model_folder
from rla.models.fingerprint import refuse_other_tokenizer
from rla.models.verifying import verify_model
from rla.pipeline.context import StageContext, called_again
from rla.pipeline.fallback import policy_of
from rla.pipeline.origins import origin, refuse_stale
from rla.plugins import need_package
from rla.processes.launch import launch, launcher
from rla.processes.ranks import launched, world
from rla.seeds import derive
from rla.store.reading import read_manifest, stream_rows
from rla.store.record import PARAMETERS, read_json, unlike_text
from rla.store.removing import settle
from rla.training.checkpoints import checkpoint_file, open_to_train, refuse_existing

if TYPE_CHECKING:
    from rla.training.data import TrainingSequence
    from rla.training.sequence_file import Facts


class OwnTraining(Protocol):
    """What a launcher's `Training` is (`rla.config.backends`); `config.launch.own` is an instance."""

    configuration: str  # of accelerate: how the processes share the model

    def train(self, ctx: StageContext, file: Path, *, out: Path, reads: Sequence[Path]) -> None:
        """Run the stage of `ctx`, whose paths are all named, in processes elsewhere, until the checkpoint is at `out`.

        Each process has the variables RANK, WORLD_SIZE and those of accelerate for `file`. `reads`: the folders that
        it needs. Raises UserError as the stage does.
        """
        ...


class Rows(NamedTuple):
    """A shard, its kind, and the columns of it that training needs."""

    folder: Path
    kind: str
    columns: tuple[str, ...]


def joined_sequences(
    make: Callable[..., Iterator[TrainingSequence]], tokens: Rows, rewards: Rows, *, config: TrainConfig, seed: int
) -> Iterator[TrainingSequence]:
    """What `make` (of `rla.training.data`) makes of the rows of `tokens` and of the rewards that train.

    Of the rewards the columns are those of their key. A UserError in the rows names both folders.
    """

    def rewarded() -> Iterator[dict[str, Any]]:
        """An advantage of zero has no gradient; `zero_advantage: count` keeps it for the updates and means."""
        found = stream_rows(rewards.folder, rewards.kind, [*rewards.columns, "advantage"])
        return (row for row in found if row["advantage"] or config.zero_advantage == "count")

    wanted = {row["trajectory_id"] for row in rewarded()}
    shown = stream_rows(tokens.folder, tokens.kind, tokens.columns, keys=wanted)
    try:
        yield from make(shown, rewarded(), max_samples=config.max_samples, seed=seed)
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
    """Train `checkpoint` (an option's name) on `sequences`. A finished checkpoint of the same origin is kept.

    The first folder of `data` is the shard that holds the token ids: it must have the checkpoint's tokenizer. `images`:
    the shard with the pictures of the sequences; it is opened where they show any. `earlier`: (token ids, rewards) of
    earlier iterations, of which there are sequences, too.
    """
    shards = (*data, *chain(*earlier))
    for shard in shards:
        read_manifest(shard)  # before a model is made for nothing
    for tokens, made in chain(((data[0], rewards) for rewards in data[1:]), earlier):
        refuse_stale(made, source=tokens)
    source = policy_of(ctx, checkpoint, checkpoint)
    out = ctx.path("out")
    made_from = origin(ctx, [source, *shards])
    marker = {"origin": made_from.as_json(), **made_from.named()}
    if agreed_answer(lambda: finished_checkpoint(out, marker, overwrite=ctx.overwrite, folders=made_from.folders)):
        return {checkpoint: str(out), **read_json(out / "metrics.json")}
    check_inputs(config, source, [data[0], *(tokens for tokens, _ in earlier)])
    file = launcher(ctx.config)
    if not launched():
        free_memory(ctx.config.generator)

    from rla.tracking.trackers import Trackers

    with Trackers(config=ctx.config.tracking, run=ctx.run, stage=ctx.spec.name) as trackers:
        if file is not None:
            options = [option for option, _ in (*ctx.spec.reads, *ctx.spec.writes)]
            paths = {option: ctx.path(option) for option in options} | {checkpoint: source}
            elsewhere: OwnTraining | None = ctx.config.launch.own
            if elsewhere is not None:
                elsewhere.train(replace(ctx, paths=paths), file, out=out, reads=(source, *shards))
            else:
                with called_again(ctx, paths) as arguments:
                    launch(file, arguments)
            return {checkpoint: str(out), **read_json(out / "metrics.json")}
        from rla.training.loop import train

        def log(update: dict[str, Any]) -> None:
            ctx.progress.advance(loss=update.get("loss", math.nan))
            trackers.log(update)

        ctx.progress.start(ctx.spec.name, total=config.updates * config.epochs)
        metrics = train(
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
            check=lambda facts: refuse_long(facts, ctx, config, data[0]),
            images=images,
            earlier=bool(earlier),
        )
    return {checkpoint: str(out), **metrics}


def check_inputs(config: TrainConfig, source: Path, shards: Sequence[Path]) -> None:
    """What can be known before rows are read and a model is loaded; `shards` have the token ids. Raises UserError."""
    if not config.enabled:
        return
    verify_model(model_folder(source), weights=False)
    for shard in shards:
        refuse_other_tokenizer(model_folder(source), recorded=read_manifest(shard).get("tokenizer"), shard=shard)
    open_to_train(source)
    if config.lora.rank:
        need_package("peft", install="rla[lora]", why="lora.rank is set")


def refuse_long(facts: Facts, ctx: StageContext, config: TrainConfig, shard: Path) -> None:
    """Raises UserError where more replies than a stated share are too long to train."""
    limit = ctx.config.rollout.max_failed_share
    if facts.replies_too_long > limit * facts.replies:
        key = f"{ctx.spec.name.replace('-', '_')}.max_tokens"
        raise UserError(
            f"{shard}: {facts.replies_too_long} of {facts.replies} replies end beyond {key} = {config.max_tokens} and "
            f"would not train, more than rollout.max_failed_share = {limit}; raise {key}, or the share"
        )


def agreed_answer(question: Callable[[], bool]) -> bool:
    """Of several processes the first one finds the answer."""
    if world() == 1:
        return question()
    from rla.training.ranks import Ranks

    ranks = Ranks.join()
    return ranks.tell(question() if ranks.first else None)


def finished_checkpoint(
    out: Path, marker: dict[str, Any], *, overwrite: bool, folders: Mapping[str, str] | None = None
) -> bool:
    """True where `out` is a complete checkpoint of this origin. One of another origin is refused, or is to be replaced:
    it stays until the new one is complete.

    Raises UserError for a folder without a record, and for one that holds other files than a checkpoint does.
    """
    settle(out, checkpoint_file)  # a killed call may have begun to replace it
    record = out / MANIFEST
    if not record.exists():
        refuse_existing(out)
        return False
    if recorded_origin(record, overwrite=overwrite) != marker["origin"]:
        if overwrite:
            refuse_existing(out, replace=True)
            return False
        found = flat_origin(read_json(record))
        unlike = unlike_text(found, flat_origin(marker), folders=folders)
        raise UserError(f"{out}: a checkpoint {unlike}; rerun with --overwrite or choose another folder")
    shutil.rmtree(out.with_name(f"{out.name}.partial"), ignore_errors=True)  # of a call that was killed at its very end
    return True


def recorded_origin(record: Path, *, overwrite: bool) -> Any:
    """What a checkpoint says it was made from; None for a damaged record that is to be replaced, if it was ours."""
    try:
        return read_json(record).get("origin")
    except UserError:
        if overwrite and all(f'"{key}"'.encode() in record.read_bytes() for key in ("updates", "digest")):
            return None
        raise


def flat_origin(record: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint was made from, with the parameters that lie beside its origin."""
    found = record.get("origin")
    return (found if isinstance(found, dict) else {}) | {PARAMETERS: record.get(PARAMETERS)}
