"""The stage commands with their inputs and outputs. Only this table is imported when the command line starts."""

from __future__ import annotations

from typing import Any

from rla.pipeline import StageSpec


def _stage(name: str, summary: str, *, reads: str = "", writes: str, **more: Any) -> StageSpec:
    """`reads` and `writes` name artifacts: `scores` is the option `--scores`, and `out=scores` the option `--out`."""
    pairs = [
        tuple((word.partition("=")[0], word.rpartition("=")[2]) for word in text.split()) for text in (reads, writes)
    ]
    module = f"stages.{name.replace('-', '_')}"
    return StageSpec(name=name, module=module, summary=summary, reads=pairs[0], writes=pairs[1], **more)


STAGES = (
    _stage(
        "make-tasks",
        "Make task pools: built-in scenes or problems, or those of a data set (--from).",
        example='rla make-tasks --from "$ALFWORLD_DATA" --split train',
        writes="train=train_tasks test=test_tasks",
        sections=("env", "tasks"),
    ),
    _stage(
        "init-model",
        "Build a small Qwen3 policy and reward model with a tokenizer of the environment's text.",
        example="rla init-model --set model.hidden_size=128",
        reads="tasks=train_tasks",
        writes="policy=init_policy rm=init_rm",
        sections=("env", "model", "judge.prompt"),
    ),
    _stage(
        "warm-start",
        "Clone expert demonstrations (policy) and labelled judgements (reward model) with TRL's SFTTrainer.",
        example="rla warm-start --set warm_start.policy.steps=100",
        reads="tasks=train_tasks init-policy=init_policy init-rm=init_rm",
        writes="policy=first_policy rm=first_rm",
        sections=("env", "tasks", "model", "policy.reply", "policy.repeat_task", "judge", "warm_start"),
    ),
    _stage(
        "rollout",
        "Play episodes of sampled and pending tasks with the policy.",
        example="rla rollout --env alfworld",
        reads="pool=previous_pool candidates=previous_candidates policy=previous_policy",
        writes="out=trajectories",
        sections=("env", "generator", "policy", "rollout", "adaptation.acceptance"),
        divided=True,
    ),
    _stage(
        "validate-tasks",
        "Accept or reject pending tasks by their measured accuracy; write the next pool.",
        example="rla validate-tasks --iteration 2",
        reads=(
            "pool=previous_pool candidates=previous_candidates trajectories before=previous_standings roots=train_tasks"
        ),
        writes="verdicts standings out=pool",
        sections=("env", "adaptation"),
    ),
    _stage(
        "score-steps",
        "Judge every step m times with the reward model, or have it write m tests for each task.",
        example="rla score-steps --iteration 2",
        reads=(
            "trajectories rm=previous_rm pool=previous_pool candidates=previous_candidates verdicts standings "
            "next-pool=pool"
        ),
        writes="out=scores",
        sections=("env", "generator", "policy.repeat_task", "judge", "rollout", "credit", "adaptation"),
        divided=True,
    ),
    _stage(
        "compute-rewards",
        "Turn outcomes and judgements into advantages for both models, and diagnostics.",
        example="rla compute-rewards --iteration 2 --set credit.estimator=outcome",
        reads="trajectories scores verdicts pool=previous_pool candidates=previous_candidates",
        writes="policy-rewards=policy_rewards rm-rewards=rm_rewards metrics",
        sections=("credit", "env"),
    ),
    _stage(
        "train-policy",
        "One iteration of clipped policy gradient on the policy.",
        example="rla train-policy --iteration 2",
        reads="policy=previous_policy trajectories rewards=policy_rewards",
        writes="out=policy",
        sections=("train_policy", "policy.temperature", "rollout.max_failed_share"),
    ),
    _stage(
        "train-rm",
        "One iteration of clipped policy gradient on the reward model.",
        example="rla train-rm --iteration 2",
        reads="rm=previous_rm scores rewards=rm_rewards",
        writes="out=rm",
        sections=("train_rm", "judge.temperature", "rollout.max_failed_share"),
    ),
    _stage(
        "adapt-env",
        "Propose harder or easier tasks, each proven solvable, where accuracy left the band.",
        example="rla adapt-env --iteration 2",
        reads="pool standings trajectories scores roots=train_tasks policy=previous_policy",
        writes="out=candidates",
        sections=("env", "generator", "rollout.tasks_per_iteration", "rollout.pending", "adaptation"),
    ),
    _stage(
        "evaluate",
        "Success on the held-out tasks, with intervals.",
        example="rla evaluate --iteration 10",
        reads="tasks=test_tasks policy rm",
        writes="out=eval_trajectories metrics=eval_metrics",
        sections=("env", "generator", "policy", "evaluation", "judge", "tasks.test_splits"),
        divided=True,
    ),
    _stage(
        "judge-accuracy",
        "Measure any judge against the environment: the scores it gave to played steps.",
        example="rla judge-accuracy --iteration 2 --scores other/scores --out other/judge.json",
        reads="trajectories scores pool=previous_pool candidates=previous_candidates",
        writes="out=judge_accuracy",
        sections=("env",),
        beside=True,
    ),
    _stage(
        "report",
        "Tables of a run: success, reward model, tasks, seconds per stage, and where everything lies.",
        example="rla report --run runs/alfworld-tiny",
        writes="out=report",
        sections=(),
        beside=True,
    ),
)
