"""The measurements of an evaluation: its held-out splits, and figures in addition to success.

A run has a pool, rows and figures for each held-out split. The main split has the folders of a run with one split;
every further split has a root of its own (`rla.store.layout`) with folders of the same names.

Packages add figures (`rla.metrics.custom`), and so does an environment's own reward rule, with the reward model if
there is one. A reward model that judges steps is measured on the frozen probe.

A judge in the loop sees the behaviour of that iteration's policy, so its accuracy there moves with both. The probe
stays the same for the whole run, and in an ablation for all arms and seeds that share the tasks of one start. Scripted
players make its episodes on tasks of the main held-out split, one episode a task: a share of their actions is drawn at
random (`RANDOM_SHARES`, from a random player to the expert), in turn over the tasks. The environment itself labels the
steps.

Polars is imported in functions: it starts threads, and `rla run` imports this file before it forks stages.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.agents import demonstrated_steps
from rla.config import Config
from rla.envs.protocols import Demonstrates, Judged, Labels, LabelsSeen, Probes, RewardRule
from rla.envs.registry import environment
from rla.metrics.custom import add_metrics
from rla.pictures.shard import distinct_images
from rla.pipeline import StageContext
from rla.pipeline.origins import held_out_pool, origin
from rla.rollouts.play import TrajectoryWriter
from rla.rollouts.scores import finish_scores, score_played
from rla.seeds import derive
from rla.store.atomic import lock_outputs, write_json
from rla.store.layout import artifact, held_out_root
from rla.store.manifest import is_complete
from rla.store.reading import read_rows, read_tasks
from rla.store.records import StopReason, Task, Trajectory, content_id
from rla.store.shards import ShardWriter

ONE_SPLIT = ("tasks", "out", "metrics")  # options that name a folder of one split
PROBE_SEED = 0  # not the run's: seeds of an ablation differ, and would be measured on other steps
RANDOM_SHARES = (1.0, 0.6, 0.3, 0.0)
SECTIONS = ("env", "policy.reply", "evaluation.probe_tasks")  # of the config, on which the probe's episodes depend


def split_contexts(ctx: StageContext, policy: Path) -> dict[str, StageContext]:
    """The call of `evaluate` for each split alone, by name, with all of its folders named.

    These are all held-out splits, or the main one if an option names a folder of one split. Makes a missing pool. Notes
    if tasks of a named pool train.
    """
    splits, named = ctx.config.tasks.test_splits, ctx.paths.get("tasks")
    if any(name in ctx.paths for name in ONE_SPLIT):
        splits = splits[:1]
    trained = artifact(ctx.run, "train_tasks", 0)
    if named is not None and is_complete(named) and is_complete(trained):
        ids, known = ({row["task_id"] for row in read_rows(pool, "tasks", ["task_id"])} for pool in (named, trained))
        if shared := len(ids & known):
            ctx.progress.note(f"{named}: {shared} of {len(ids)} tasks are in the training pool {trained}")
    found = {}
    for split in splits:
        root = held_out_root(ctx.run, ctx.config.tasks.test_splits, split)
        own = {
            "tasks": named or held_out_pool(ctx, split),
            "policy": policy,
            "rm": ctx.path("rm"),
            "out": ctx.paths.get("out") or artifact(root, "eval_trajectories", ctx.iteration),
            "metrics": ctx.paths.get("metrics") or artifact(root, "eval_metrics", ctx.iteration),
        }
        found[split] = replace(ctx, paths=own)
    return found


def evaluating(config: Config) -> Config:
    """The config with the evaluation's own temperature and step limit."""
    return replace(
        config,
        policy=replace(config.policy, temperature=config.evaluation.temperature),
        env=replace(config.env, max_steps=config.evaluation.max_steps),
    )


def add_further(metrics: dict[str, Any], ctx: StageContext, tasks: Sequence[Task], *, probed: bool) -> None:
    """Add further figures of the stage's `out`, whose tasks are `tasks`.

    `probed`: measure the reward model on the frozen probe, too, if it trains and the environment has a scripted player
    and ground truth about steps.
    """
    config, chosen = ctx.config, environment(ctx.config.env.name)
    add_metrics(metrics, ctx.path("out"), config, held_out=tasks)
    if isinstance(chosen, Probes):
        metrics |= _rule_metrics(ctx, chosen.reward_rule())
        return
    labelled = isinstance(chosen, Labels) and not isinstance(chosen, LabelsSeen)
    wanted = probed and config.evaluation.probe_tasks > 0 and config.judge.enabled and config.judge.trains
    if not (wanted and labelled and isinstance(chosen, Judged) and isinstance(chosen, Demonstrates)):
        return
    from rla.metrics.diagnostics import probe_metrics

    rm = ctx.path("rm")
    if rm == artifact(ctx.run, "rm", 0) and not rm.exists():  # the untrained model of a run without a warm start
        rm = artifact(ctx.run, "init_rm", 0)
    if rm.exists():
        probe = _frozen_probe(ctx, chosen)
        once = replace(ctx, config=replace(config, judge=replace(config.judge, votes=1)))
        metrics |= probe_metrics(probe, _scores(once, ctx.path("out").with_name("probe"), probe, rm))


def _rule_metrics(ctx: StageContext, rule: RewardRule) -> dict[str, Any]:
    """The metrics of `rule` on the trajectories of the stage's `out`, with judgements if anybody judges."""
    from rla.store.frames import read_episodes, read_judgements

    rm, played = ctx.path("rm"), ctx.path("out")
    trains, scores = ctx.config.judge.trains, None
    if not ctx.config.judge.enabled or (trains and not rm.exists()):
        reason = f"{rm}: no reward model" if ctx.config.judge.enabled else "judge.enabled is false"
        ctx.progress.note(f"{reason}; programs are evaluated alone")
    else:
        scores = _scores(ctx, played.with_name("scores"), played, rm if trains else None)
    episodes, _ = read_episodes(played, texts=True)
    return rule.metrics(episodes, read_judgements(scores))


def _scores(ctx: StageContext, folder: Path, played: Path, rm: Path | None) -> Path:
    """`folder` with the judgements of `played` by the reward model `rm`, or by a chat server."""
    made_from = origin(ctx, [played, *([rm] if rm else [])])
    with lock_outputs([folder], wait=True):  # other slices of this evaluation may be making it
        writer = ShardWriter(folder, "scores", made_from, overwrite=ctx.overwrite, tell=ctx.progress.note)
        if not writer.complete:
            score_played(ctx, writer, played, rm, pools=("tasks",))
            finish_scores(ctx, writer, rm)
    return folder


def _frozen_probe(ctx: StageContext, chosen: Demonstrates) -> Path:
    """The folder of the probe's episodes, which are made if they are missing, with their labels next to it."""
    from rla.metrics.diagnostics import PROBE_LABEL, PROBE_LABELS
    from rla.rollouts.labels import labels_in

    always = replace(ctx, iteration=0, config=replace(ctx.config, seed=PROBE_SEED))
    folder, tasks_folder = artifact(ctx.run, "probe_trajectories", 0), ctx.path("tasks")
    made_from = origin(always, [tasks_folder], sections=SECTIONS)
    labels = folder.with_name(PROBE_LABELS)
    with lock_outputs([folder], wait=True):  # the evaluation of another iteration may be making it
        writer = TrajectoryWriter(ctx, folder, made_from)
        if not writer.complete:
            tasks = sorted(read_tasks(tasks_folder), key=lambda task: task.task_id)
            count = min(ctx.config.evaluation.probe_tasks, len(tasks))
            drawn = random.Random(derive(PROBE_SEED, "frozen probe")).sample(tasks, count)
            for number, task in enumerate(drawn):
                if not writer.has(number):
                    writer.keep(number, [_scripted_episode(always.config, chosen, task, number)])
            labels.unlink(missing_ok=True)  # those of episodes that are replaced
            writer.complete_shard()
        if not labels.exists():
            found = labels_in(folder, [(tasks_folder, "tasks")], ctx.config).frame
            write_json(labels, {"steps": found.select(*PROBE_LABEL).to_dicts()})
    return folder


def _scripted_episode(config: Config, chosen: Demonstrates, task: Task, number: int) -> Trajectory:
    """The episode of the task by the player whose turn it is."""
    share = RANDOM_SHARES[number % len(RANDOM_SHARES)]
    seed = derive(config.seed, "frozen probe", task.task_id)
    shown = chosen.demonstrate(task, config, seed=seed, random_share=share)
    return Trajectory(
        trajectory_id=content_id(task.task_id, "frozen probe"),
        task_id=task.task_id,
        slot=task.slot,
        status=task.status,
        iteration=0,
        rollout=0,
        seed=seed,
        outcome=1 if shown.won else -1,
        stop_reason=StopReason.WON if shown.won else StopReason.MAX_STEPS,
        instruction=task.instruction,
        kind=task.kind,
        policy=f"scripted, {share:.0%} of the actions at random",
        steps=demonstrated_steps(shown, environment(config.env.name).policy_prompt(config)),
        segments=[],
        images=distinct_images(shown.images),
        final_observation=shown.final_observation,
    )
