"""What an evaluation measures beside success: what packages measure (`rla.metrics.custom`), what an environment's own
reward rule says, with the reward model where there is one, and the reward model itself on the frozen probe.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.envs.protocols import Demonstrates, Groups, Judged, Labels, LabelsSeen, Probes, RewardRule
from rla.envs.registry import environment
from rla.metrics.custom import add_metrics
from rla.metrics.probed import LABEL, LABELS, probe_figures, probe_labels, probe_votes
from rla.pictures.shard import distinct_images
from rla.pipeline.context import StageContext
from rla.pipeline.origins import origin
from rla.rollouts.labels import labels_in
from rla.rollouts.score_shard import finish_scores, score_played
from rla.rollouts.trajectory_shard import image_shard, is_kept, keep_episodes, trajectory_counts
from rla.seeds import derive
from rla.store.atomic import write_json
from rla.store.frames import read_episodes, read_judgements
from rla.store.layout import artifact
from rla.store.pools import read_tasks
from rla.store.records import Step, StopReason, Task, Trajectory, content_id
from rla.store.shards import ShardWriter
from rla.store.slices import lock_outputs

PROBE_SEED = 0  # and not the run's: seeds of an ablation differ, and would be measured on other steps
RANDOM_SHARES = (1.0, 0.6, 0.3, 0.0)
SECTIONS = ("env", "policy.reply", "evaluation.probe_tasks")  # of the config, on which the episodes depend


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
        finish_scores(ctx, writer, rm if own else None)
    return folder


def probe_metrics(ctx: StageContext) -> dict[str, Any]:
    """`rla.metrics.probed` of the stage's reward model. Nothing where there is none, where it does not train, or where
    the environment has no scripted player or no ground truth about steps.
    """
    rm = reward_model_of(ctx)
    if not (is_probed(ctx) and rm.exists()):
        return {}
    probe = frozen_probe(ctx)
    scores = probe_scores(ctx, probe, rm)
    return probe_figures(probe_votes(probe, scores), steps=probe_labels(probe).height)


def reward_model_of(ctx: StageContext) -> Path:
    """The checkpoint of the option, or the untrained model at the start of a run without a warm start."""
    rm = ctx.path("rm")
    return artifact(ctx.run, "init_rm", 0) if rm == artifact(ctx.run, "rm", 0) and not rm.exists() else rm


def is_probed(ctx: StageContext) -> bool:
    config, chosen = ctx.config, environment(ctx.config.env.name)
    judged = isinstance(chosen, Judged) and not isinstance(chosen, Probes)
    labelled = isinstance(chosen, Labels) and not isinstance(chosen, LabelsSeen)
    wanted = config.evaluation.probe_tasks > 0 and config.judge.enabled and config.judge.trains
    return wanted and judged and labelled and isinstance(chosen, Demonstrates)


def frozen_probe(ctx: StageContext) -> Path:
    """The folder of the episodes of the frozen probe, which are made if they are missing.

    What a judge says in the loop is about what the policy of that iteration does, so its accuracy there moves with
    both. The probe stays the same for the whole run, and in an ablation for all arms and seeds that have the tasks of
    one start. Scripted players make its episodes on tasks of the main held-out split, one episode a task: a share of
    their actions is drawn at random (`RANDOM_SHARES`, from a random player to the expert), in turn over the tasks. The
    environment itself labels the steps, as it does those of an iteration. `labels.json` beside the episodes says of
    each step trajectory_id, task_id, step and label (+1, -1).
    """
    always = replace(ctx, iteration=0, config=replace(ctx.config, seed=PROBE_SEED))
    folder, tasks_folder = artifact(ctx.run, "probe_trajectories", 0), ctx.path("tasks")
    made_from = origin(always, [tasks_folder], sections=SECTIONS)
    with lock_outputs([folder], wait=True):  # the evaluation of another iteration may be making it
        writer = ShardWriter(folder, "trajectories", made_from, overwrite=ctx.overwrite, tell=ctx.progress.note)
        images = image_shard(ctx, writer)
        labels = folder.with_name(LABELS)
        if not writer.complete:
            for number, task in enumerate(probed_tasks(always, tasks_folder)):
                if not is_kept(writer, images, number):
                    keep_episodes(writer, images, number, [scripted_episode(always, task, number)])
            labels.unlink(missing_ok=True)  # those of episodes that are replaced
            writer.finish(trajectory_counts(writer.parts()), check=lambda _: images.finish() if images else None)
        if not labels.exists():
            found = labels_in(folder, [(tasks_folder, "tasks")], ctx.config).frame
            write_json(labels, {"steps": found.select(*LABEL).to_dicts()})
    return folder


def probed_tasks(ctx: StageContext, tasks_folder: Path) -> list[Task]:
    """`evaluation.probe_tasks` of the pool, or all where it has fewer."""
    tasks = sorted(read_tasks(tasks_folder), key=lambda task: task.task_id)
    rng = random.Random(derive(ctx.config.seed, "frozen probe"))
    return rng.sample(tasks, min(ctx.config.evaluation.probe_tasks, len(tasks)))


def scripted_episode(ctx: StageContext, task: Task, number: int) -> Trajectory:
    """The episode of the task by the player whose turn it is."""
    chosen = environment(ctx.config.env.name)
    assert isinstance(chosen, Demonstrates)
    share = RANDOM_SHARES[number % len(RANDOM_SHARES)]
    seed = derive(ctx.config.seed, "frozen probe", task.task_id)
    shown = chosen.demonstrate(task, ctx.config, seed=seed, random_share=share)
    prompt = chosen.policy_prompt(ctx.config)
    steps = [
        Step(
            observation=observation,
            commands=commands,
            reply=prompt.render(action, commands),
            action=action,
            valid=True,
            truncated=False,
            segment=0,
            start=0,
            end=0,
        )
        for observation, commands, action in zip(shown.observations, shown.commands, shown.actions, strict=True)
    ]
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
        steps=steps,
        segments=[],
        images=distinct_images(shown.images),
        final_observation=shown.final_observation,
    )


def probe_scores(ctx: StageContext, probe: Path, rm: Path) -> Path:
    """The folder of the votes, one a step, beside the evaluation's own trajectories."""
    folder = ctx.path("out").with_name("probe")
    once = replace(ctx, config=replace(ctx.config, judge=replace(ctx.config.judge, votes=1)))
    writer = ShardWriter(folder, "scores", origin(once, [probe, rm]), overwrite=ctx.overwrite, tell=ctx.progress.note)
    if not writer.complete:
        score_played(once, writer, probe, rm, pools=("tasks",))
        finish_scores(once, writer, rm)
    return folder
