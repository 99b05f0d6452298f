"""`warm-start`: supervised training of both models, on expert episodes and on labelled judgements."""

from __future__ import annotations

from typing import Any

from rla.pipeline import StageContext
from rla.pipeline.origins import origin, policy_of, pool_of
from rla.store.manifest import digest, read_json
from rla.training.checkpoints import finished_checkpoint
from rla.training.warm_start import given_examples, needs_agent, warm_start_model

# The parameters that each model depends on: if parameters of the judge change, the policy stays.
SHARED = (
    *("env", "tasks", "model", "policy.reply", "policy.repeat_task"),
    *(f"warm_start.{key}" for key in ("enabled", "scenes", "threads")),
)
SECTIONS = {
    "policy": (*SHARED, "warm_start.expert", "warm_start.policy", "warm_start.conversations"),
    "rm": (
        *SHARED,
        *("judge.enabled", "judge.server.model", "judge.prompt"),
        *(f"warm_start.{key}" for key in ("reward", "reward_from_policy", "alike", "calibration")),
    ),
}


def asked_as(ctx: StageContext, option: str) -> str:
    """Further dependencies of a model: its adapter, and the view of the episode if prompts show a window."""
    lora = ctx.config.taught_by_adapter(option)
    kind = "" if lora is None else lora.adapter
    if not needs_agent(ctx):
        return kind
    shown = f"{ctx.config.policy.history} {ctx.config.policy.images}" if option == "policy" else ctx.config.judge.images
    return f"{shown}{kind}"


def run(ctx: StageContext) -> dict[str, Any]:
    """Write the checkpoints of iteration 0. Models without a warm start are carried over unchanged."""
    tasks_folder = pool_of(ctx, "tasks")
    summary: dict[str, Any] = {}
    given = given_examples(ctx)
    for option in ("policy", "rm"):
        model = policy_of(ctx, f"init-{option}", option)
        if option == "rm" and ctx.config.warm_start.reward_from_policy:
            model = ctx.path("policy")
        learnt = given.files if option == "policy" and given is not None else ()
        made_from = origin(ctx, [tasks_folder, model, *learnt], sections=SECTIONS[option], also=asked_as(ctx, option))
        marker = {"origin": made_from.as_json(), **made_from.named()}
        out = ctx.path(option)
        if not finished_checkpoint(out, marker, overwrite=ctx.overwrite, folders=made_from.folders):
            warm_start_model(ctx, option, model=model, out=out, tasks_folder=tasks_folder, marker=marker, given=given)
        summary[option] = {"folder": str(out), "digest": digest(out), **read_json(out / "metrics.json")}
    return summary
