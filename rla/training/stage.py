"""`train-policy` and `train-rm`: open the inputs, and train here, or with the launcher that `launch.training` names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rla.config.training import TrainConfig
from rla.errors import UserError
from rla.llm.factory import free_memory
from rla.models.checkpoint import METRICS, model_folder, verify_model
from rla.models.load import refuse_other_tokenizer
from rla.pipeline import StageContext, called_again, followers
from rla.pipeline.origins import origin, policy_of, refuse_stale
from rla.plugins import need_package
from rla.processes import launch, launched, launcher, rank, world
from rla.seeds import derive
from rla.store.manifest import read_json
from rla.store.reading import read_manifest, stream_rows
from rla.training.sequences import TrainingSequence, policy_sequences, reward_model_sequences


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


class _Joining(NamedTuple):
    """How rows with tokens and rows with rewards become sequences: their kinds and the columns that are read."""

    make: Callable[..., Iterator[TrainingSequence]]
    kind: str
    columns: tuple[str, ...]
    rewards: str
    key: tuple[str, ...]  # of a reward


POLICY = _Joining(
    make=policy_sequences,
    kind="trajectories",
    columns=("trajectory_id", "task_id", "steps", "segments", "image_spans"),
    rewards="policy_rewards",
    key=("trajectory_id", "step"),
)
REWARD_MODEL = _Joining(
    make=reward_model_sequences,
    kind="scores",
    columns=("trajectory_id", "task_id", "step", "prompt_ids", "judgements", "image_spans"),
    rewards="rm_rewards",
    key=("trajectory_id", "step", "judgement"),
)
Shards = tuple[Path, Path]  # with tokens, and with the rewards that were made of them


def joined_sequences(
    joining: _Joining, shards: Shards, *, config: TrainConfig, seed: int
) -> Iterator[TrainingSequence]:
    """The sequences of a shard with tokens and its rewards. A UserError in the rows names both folders."""
    tokens, rewards = shards

    def rewarded() -> Iterator[dict[str, Any]]:
        """An advantage of zero has no gradient; unless it is dropped, it counts in updates and means."""
        found = stream_rows(rewards, joining.rewards, [*joining.key, "advantage"])
        return (row for row in found if row["advantage"] or config.zero_advantage != "drop")

    wanted = {row["trajectory_id"] for row in rewarded()}
    rows = stream_rows(tokens, joining.kind, joining.columns, keys=wanted)
    try:
        yield from joining.make(rows, rewarded(), max_samples=config.max_samples, seed=seed)
    except UserError as error:
        raise UserError(f"{tokens} with {rewards}: {error}") from error


def train_stage(
    ctx: StageContext,
    *,
    checkpoint: str,
    config: TrainConfig,
    temperature: float,
    joining: _Joining,
    shards: Shards,
    earlier: Sequence[Shards] = (),
    images: Path | None = None,
) -> dict[str, Any]:
    """Train `checkpoint` (an option's name) on `shards`, unless a finished checkpoint of the same origin is there.

    `earlier`: the shards of earlier iterations, which train as well. `images`: the shard with the pictures of the
    sequences. Raises UserError.
    """
    folders = [folder for pair in (shards, *earlier) for folder in pair]
    for folder in folders:
        read_manifest(folder)  # before a model is made for nothing
    for tokens, rewards in (shards, *earlier):
        refuse_stale(rewards, source=tokens)
    source, out = policy_of(ctx, checkpoint, checkpoint), ctx.path("out")
    made_from = origin(ctx, [source, *folders])
    marker = {"origin": made_from.as_json(), **made_from.named()}
    if not _finished(out, marker, overwrite=ctx.overwrite, folders=made_from.folders):
        if config.enabled:
            _check_inputs(config, source, [tokens for tokens, _ in (shards, *earlier)])
        configuration = launcher(ctx.config)
        if not launched():
            free_memory(ctx.config.generator)

        with ExitStack() as stack:
            following = followers(ctx.config, "follow_training")
            logs = [stack.enter_context(follow(ctx.run, ctx.spec.name, ctx.config)) for follow in following]
            if configuration is not None:
                paths = {option: ctx.path(option) for option, _ in (*ctx.spec.reads, *ctx.spec.writes)}
                again = replace(ctx, paths=paths | {checkpoint: source})
                own: Launcher | None = ctx.config.launch.own
                if own is None:
                    with called_again(again, again.paths) as arguments:
                        launch(configuration, arguments)
                else:
                    own.train(TrainingJob(ctx=again, out=out, reads=(source, *folders), configuration=configuration))
            else:  # also in a rank of a launcher
                from rla.training.loop import train

                def log(update: dict[str, Any]) -> None:
                    resumed = update.get("resumed", False)
                    ctx.progress.advance(resumed=resumed, loss=update.get("loss", math.nan))
                    for log_update in logs if rank() == 0 and not resumed else ():
                        log_update(update)

                def sequences() -> Iterator[TrainingSequence]:
                    for pair in (*earlier, shards) if config.enabled else ():
                        yield from joined_sequences(joining, pair, config=config, seed=ctx.config.seed)

                ctx.progress.start(ctx.spec.name, total=config.updates * config.epochs)
                train(
                    model_folder=source,
                    out=out,
                    sequences=sequences(),
                    config=config,
                    temperature=temperature,
                    seed=derive(ctx.config.seed, ctx.spec.name, ctx.iteration),
                    record=marker,
                    log=log,
                    replicas=ctx.config.launch.replicas,
                    replace=ctx.overwrite,
                    most_too_long=ctx.config.rollout.max_failed_share,
                    images=images,
                    earlier=bool(earlier),
                )
    return {checkpoint: str(out), **read_json(out / METRICS)}


def _check_inputs(config: TrainConfig, source: Path, shards: Sequence[Path]) -> None:
    """Check the inputs before rows are read and a model is loaded; `shards` have the token ids. Raises UserError."""
    from rla.training.checkpoints import open_to_train

    folder = model_folder(source)
    verify_model(folder, weights=False)
    for shard in shards:
        refuse_other_tokenizer(folder, recorded=read_manifest(shard).get("tokenizer"), shard=shard)
    open_to_train(source)
    if config.lora.rank:
        need_package("peft", install="rla[lora]", why="lora.rank is set")


def _finished(out: Path, marker: dict[str, Any], *, overwrite: bool, folders: Mapping[str, str] | None) -> bool:
    """`finished_checkpoint` as rank 0 finds it, on every rank."""
    from rla.training.checkpoints import finished_checkpoint  # imports torch

    finished = partial(finished_checkpoint, out, marker, overwrite=overwrite, folders=folders)
    if world() == 1:
        return finished()
    from rla.training.shared import Ranks  # imports FSDP, which takes a second

    ranks = Ranks.join()
    return ranks.broadcast(finished() if ranks.first else None)
