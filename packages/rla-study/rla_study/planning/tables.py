"""The plan of a run as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rla.config import Config
from rla.config.sections import CheckpointsConfig
from rla.report.tables import ABSENT, Table
from rla.text import readable_bytes
from rla_study.planning.disk import TOKEN_ON_DISK, CheckpointBytes, RunBytes, Taught, checkpoint_bytes, run_bytes
from rla_study.planning.plan import Machine, Models, StageNeed, reward_model_trains
from rla_study.planning.work import Guesses

SHARDED = ("rollout", "score-steps")  # stages whose tokens are stored in shards


def model_table(config: Config, models: Models) -> Table:
    """Weights and checkpoints of each model."""
    rows = []
    for name, shape, disk in zip(
        ("policy", "reward model"), (models.policy, models.reward), both_checkpoints(config, models), strict=True
    ):
        sizes = (readable_bytes(size) if size else ABSENT for size in (disk.state, disk.export))
        rows.append((name, shape.name, f"{shape.weights:,}", *sizes))
    if models.proposer is not None:
        rows.append(("proposer", models.proposer.name, f"{models.proposer.weights:,}", ABSENT, ABSENT))
    columns = ("model", "shape", "weights", "train state on disk", "export on disk")
    return Table(title="Models", columns=columns, rows=tuple(rows))


def both_checkpoints(config: Config, models: Models) -> list[CheckpointBytes]:
    """The checkpoints of the policy and of the reward model."""
    return [
        checkpoint_bytes(shape, train, trains=trains, warm=_taught_at_first(config, option))
        for option, shape, train, trains in (
            ("policy", models.policy, config.train_policy, config.train_policy.enabled),
            ("rm", models.reward, config.train_rm, reward_model_trains(config)),
        )
    ]


def _taught_at_first(config: Config, option: str) -> Taught:
    """What the warm start teaches the policy, or the reward model (`rm`)."""
    if not config.warm_start.enabled:
        return "nothing"
    return "adapter" if config.taught_by_adapter(option) else "weights"


def stage_table(needs: Sequence[StageNeed], machine: Machine, guesses: Guesses) -> Table:
    rows = tuple(
        (
            one.stage,
            f"{one.gpus} of {machine.gpus}" if machine.gpus and one.host else ABSENT,
            readable_bytes(one.gpu) if one.gpu else ABSENT,
            readable_bytes(one.host) if one.host else ABSENT,
            f"{one.tokens / 1e6:,.2f}" if one.host else ABSENT,
            f"{one.flops / 1e15:,.2f}" if one.host else ABSENT,
            _readable_seconds(one.seconds) if one.host else ABSENT,
        )
        for one in needs
    )
    total = sum(one.seconds for one in needs if one.stage not in ("warm-start", "evaluate"))
    where = "a GPU" if machine.gpus else "of the CPU"
    note = (
        f"an iteration without evaluation: {_readable_seconds(total)} at {machine.flops / 1e12:g} TFLOP/s {where}, of "
        f"which training and prompts reach {machine.training_share:g} and sampled tokens {machine.decoding_share:g}; "
        f"guessed: prompts of {guesses.prompt} tokens, observations of {guesses.observation}, replies of "
        f"{guesses.reply:g} max_tokens, episodes of {guesses.steps:g} env.max_steps"
        f"{'' if all(one.host for one in needs) else f'; {ABSENT}: nothing to do'}"
    )
    columns = ("stage", "GPUs", "memory of each", "host memory", "million tokens", "PFLOP", "time")
    return Table(title="Stages", columns=columns, rows=rows, note=note)


def planned_disk(config: Config, models: Models, needs: Sequence[StageNeed], *, iterations: int) -> RunBytes:
    """The disk space of the whole run."""
    tokens = sum(one.tokens for one in needs if one.stage in SHARDED)
    return run_bytes(
        both_checkpoints(config, models),
        shards=TOKEN_ON_DISK * tokens,
        iterations=iterations,
        config=config.checkpoints,
    )


def disk_table(disk: RunBytes, config: CheckpointsConfig, *, iterations: int) -> Table:
    rows = (
        ("an iteration writes", readable_bytes(disk.iteration)),
        (f"{iterations} iterations, nothing pruned", readable_bytes(disk.kept)),
        (f"{iterations} iterations, pruned", readable_bytes(disk.pruned)),
        ("an iteration adds on average, pruned", readable_bytes(disk.pruned / iterations)),
    )
    note = (
        f"checkpoints.keep {config.keep}, export_every {config.export_every}; at its largest, "
        "with what a training stage saves on its way"
    )
    return Table(title="Disk", columns=("", "bytes"), rows=rows, note=note)


def disk_refusal(disk: RunBytes, config: CheckpointsConfig, free: float) -> list[str]:
    """The reason why the run does not fit into `free` bytes (0: unlimited), with the change that saves most."""
    if not free or disk.pruned <= free:
        return []
    if not config.keep:
        remedy = "set checkpoints.keep: 2"
    elif config.keep > 1:
        remedy = "set checkpoints.keep: 1, or take a larger disk"
    else:
        remedy = "take a larger disk, or train an adapter (lora.rank)"
    return [f"the run needs {readable_bytes(disk.pruned)} of {readable_bytes(free)} on the disk; {remedy}"]


def _readable_seconds(seconds: float) -> str:
    """`90 s`, `12 min`, `3.4 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
