"""`warm-start`: supervised training of both models, on expert episodes and on labelled judgements."""

from __future__ import annotations

from typing import Any

from rla.envs.registry import environment
from rla.pictures.prompts import shows_images
from rla.pipeline import StageContext, implementation
from rla.pipeline.origins import origin, policy_of, pool_of
from rla.store.manifest import digest, read_json
from rla.training.checkpoints import finished_checkpoint
from rla.training.warm_start import warm_start_model

# The parameters that each model depends on: if parameters of the judge change, the policy stays.
SHARED = (
    *("env", "tasks", "model", "policy.reply", "policy.repeat_task"),
    *(f"warm_start.{key}" for key in ("enabled", "scenes")),
)
SECTIONS = {
    "policy": (*SHARED, *(f"warm_start.{key}" for key in ("expert", "policy", "conversations"))),
    "rm": (
        *SHARED,
        *("judge.enabled", "judge.server.model", "judge.prompt"),
        *(f"warm_start.{key}" for key in ("reward", "reward_from_policy", "alike", "calibration")),
        *(f"warm_start.policy.{key}" for key in ("tokens_per_pass", "gradient_checkpointing")),  # inherited
    ),
}


def _view(ctx: StageContext, option: str) -> str:
    """How a model is shown an episode, with the number of pictures if there are any, and its adapter."""
    shown = ctx.config.policy if option == "policy" else ctx.config.judge
    parts: list[str] = [ctx.config.policy.history] if option == "policy" else []
    if shows_images(environment(ctx.config.env.name), ctx.config):
        parts.append(str(shown.images))
    lora = ctx.config.taught_by_adapter(option)
    return " ".join([*parts, *([] if lora is None else [lora.adapter])])


def run(ctx: StageContext) -> dict[str, Any]:
    """Write the checkpoints of iteration 0. Models without a warm start are carried over unchanged."""
    tasks_folder = pool_of(ctx, "tasks")
    warm, files, given = ctx.config.warm_start, (), None
    if warm.conversations and warm.enabled:
        files, given = implementation("warm_start.conversations")(ctx)
    summary: dict[str, Any] = {}
    for option in ("policy", "rm"):
        of_policy = option == "policy"
        model = policy_of(ctx, f"init-{option}", option)
        if not of_policy and warm.reward_from_policy:
            model = ctx.path("policy")
        inputs = [tasks_folder, model, *(files if of_policy else ())]
        made_from = origin(ctx, inputs, sections=SECTIONS[option], also=_view(ctx, option))
        marker = {"origin": made_from.as_json(), **made_from.named()}
        out = ctx.path(option)
        if not finished_checkpoint(out, marker, overwrite=ctx.overwrite, folders=made_from.folders):
            told = given if of_policy else None
            warm_start_model(ctx, option, model=model, out=out, tasks_folder=tasks_folder, marker=marker, given=told)
        summary[option] = {"folder": str(out), "digest": digest(out), **read_json(out / "metrics.json")}
    return summary
