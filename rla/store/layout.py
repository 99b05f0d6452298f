"""Where every artifact of a run lies: the convention that lets a stage be called with `--run` and `--iteration` alone.

<run>/0/pool, <run>/test/pool              task pools as made
<run>/init/{policy,rm}, <run>/0/{policy,rm}  new models, and after the warm start
<run>/<i>/{trajectories,scores,verdicts,standings,pool,candidates}
<run>/<i>/rewards/{policy,rm}, <run>/<i>/{policy,rm}, <run>/<i>/{metrics,tasks}.json
<run>/<i>/judge-accuracy.json              of `rla judge-accuracy`, which is no part of the loop
<run>/eval/<i>/{trajectories,metrics.json}, <run>/eval/<i>/scores where the environment's reward model is evaluated too
<run>/report
<run>/tensorboard/<stage>, <run>/tracking/<stage>  curves of training over all iterations; no stage reads them
"""

from __future__ import annotations

from pathlib import Path

# name -> path below the run; {i} is the iteration, {p} the previous one
PATHS = {
    "train_tasks": "0/pool",
    "test_tasks": "test/pool",
    "init_policy": "init/policy",
    "init_rm": "init/rm",
    "first_policy": "0/policy",
    "first_rm": "0/rm",
    "previous_policy": "{p}/policy",
    "previous_rm": "{p}/rm",
    "previous_pool": "{p}/pool",
    "previous_candidates": "{p}/candidates",
    "previous_standings": "{p}/standings",
    "trajectories": "{i}/trajectories",
    "scores": "{i}/scores",
    "verdicts": "{i}/verdicts",
    "standings": "{i}/standings",
    "pool": "{i}/pool",
    "candidates": "{i}/candidates",
    "policy_rewards": "{i}/rewards/policy",
    "rm_rewards": "{i}/rewards/rm",
    "metrics": "{i}/metrics.json",
    "task_metrics": "{i}/tasks.json",
    "judge_accuracy": "{i}/judge-accuracy.json",
    "policy": "{i}/policy",
    "rm": "{i}/rm",
    "eval_trajectories": "eval/{i}/trajectories",
    "eval_scores": "eval/{i}/scores",
    "eval_metrics": "eval/{i}/metrics.json",
    "report": "report",
}


def artifact(run: Path, name: str, iteration: int) -> Path:
    """The folder (or file) of the artifact `name` at `iteration`."""
    return run / PATHS[name].format(i=iteration, p=iteration - 1)
