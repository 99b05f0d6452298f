"""What an evaluation measures beside success: what packages measure (`rla.metrics.custom`), what an environment's own
reward rule says, with the reward model where there is one, and the reward model itself on the frozen probe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.envs.protocols import Groups, Probes, RewardRule
from rla.envs.registry import environment
from rla.metrics.custom import add_metrics
from rla.models.checkpoint import model_folder
from rla.models.fingerprint import tokenizer_fingerprint
from rla.pipeline.context import StageContext
from rla.pipeline.origins import origin
from rla.rollouts.frozen_probe import probe_metrics
from rla.rollouts.score_shard import refuse_failed_share, score_counts, score_played
from rla.store.frames import read_episodes, read_judgements
from rla.store.records import Task
from rla.store.shards import ShardWriter


def add_further(metrics: dict[str, Any], ctx: StageContext, tasks: Sequence[Task], *, probed: bool) -> None:
    """Add those of the trajectories of the stage's `out`, whose tasks are `tasks`. `probed`: also those of the reward
    model on the frozen probe.
    """
    chosen = environment(ctx.config.env.name)
    add_metrics(metrics, ctx.path("out"), ctx.config, held_out=tasks)
    metrics |= rule_metrics(ctx, chosen.reward_rule()) if isinstance(chosen, Probes) else {}
    metrics |= probe_metrics(ctx) if probed else {}


def families(config: Config) -> Callable[[str], str] | None:
    """The family of a kind of task; nothing where kinds of this environment have none."""
    chosen = environment(config.env.name)
    return chosen.family_of_kind if isinstance(chosen, Groups) else None


def rule_metrics(ctx: StageContext, rule: RewardRule) -> dict[str, Any]:
    """The metrics of `rule` on the trajectories of the stage's `out`."""
    scores = held_out_scores(ctx)
    episodes, _ = read_episodes(ctx.path("out"), texts=True)
    return rule.metrics(episodes, read_judgements(scores))


def held_out_scores(ctx: StageContext) -> Path | None:
    """The folder of what the reward model wrote about the held-out tasks; None where nothing judges."""
    rm, folder = ctx.path("rm"), ctx.path("out").with_name("scores")
    own = ctx.config.judge.trains
    if not ctx.config.judge.enabled or (own and not rm.exists()):
        reason = f"{rm}: no reward model" if ctx.config.judge.enabled else "judge.enabled is false"
        ctx.progress.note(f"{reason}; programs are evaluated alone")
        return None
    made_from = origin(ctx, [ctx.path("out"), *([rm] if own else [])])
    writer = ShardWriter(folder, "scores", made_from, overwrite=ctx.overwrite, tell=ctx.progress.note)
    if not writer.complete:
        score_played(ctx, writer, ctx.path("out"), rm if own else None, pools=("tasks",))
        tokenizer = tokenizer_fingerprint(model_folder(rm)) if own else None
        counts = score_counts(writer.parts(), ctx.config)
        writer.finish(counts, tokenizer=tokenizer, check=lambda whole: refuse_failed_share(ctx, writer, whole))
    return folder
