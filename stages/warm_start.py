"""`warm-start`: supervised training of both models, on expert episodes and on labelled judgements."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.config.sections import SftConfig
from rla.envs.registry import setting
from rla.errors import UserError
from rla.llm.chat import ChatFormat
from rla.pipeline.common import model_folder, origin, read_tasks
from rla.pipeline.context import StageContext
from rla.pipeline.fallback import policy_of, pool_of
from rla.seeds import derive
from rla.store.records import Task
from rla.store.shards import digest, read_json
from rla.training.lessons import judge_examples, policy_examples, reward_examples
from rla.training.stage import finished

if TYPE_CHECKING:
    from rla.training.sft import Example

# What each of the two depends on: a change of the judge's part leaves the policy as it is.
SHARED = (
    *("env", "tasks", "model", "policy.reply", "policy.repeat_task"),
    *(f"warm_start.{key}" for key in ("enabled", "scenes", "threads")),
)
SECTIONS = {
    "policy": (*SHARED, "warm_start.policy"),
    "rm": (
        *SHARED,
        "judge.prompt",
        *(f"warm_start.{key}" for key in ("reward", "reward_from_policy", "alike", "calibration")),
    ),
}


def run(ctx: StageContext) -> dict[str, Any]:
    """Writes the checkpoints of iteration 0. Models that need no warm start are carried over as they are."""
    tasks_folder = pool_of(ctx, "tasks")
    summary: dict[str, Any] = {}
    for option, source, config in (
        ("policy", "init-policy", ctx.config.warm_start.policy),
        ("rm", "init-rm", ctx.config.warm_start.reward),
    ):
        model = policy_of(ctx, source, option)
        if option == "rm" and ctx.config.warm_start.reward_from_policy:
            model = ctx.path("policy")
        made_from = origin(ctx, [tasks_folder, model], sections=SECTIONS[option])
        marker = {"origin": made_from.as_json()}
        out = ctx.path(option)
        if not finished(out, marker, overwrite=ctx.overwrite):
            train(ctx, option, model=model, out=out, config=config, tasks_folder=tasks_folder, marker=marker)
        summary[option] = {"folder": str(out), "digest": digest(out), **read_json(out / "metrics.json")}
    return summary


def train(
    ctx: StageContext,
    option: str,
    *,
    model: Path,
    out: Path,
    config: SftConfig,
    tasks_folder: Path,
    marker: dict[str, Any],
) -> None:
    from rla.models.load import load_tokenizer
    from rla.training.checkpoint import carry_over
    from rla.training.complete import open_to_train
    from rla.training.sft import sft

    examples: list[Example] = []
    then: tuple[list[Example], SftConfig] | None = None
    calibration = ctx.config.warm_start.calibration
    if ctx.config.warm_start.enabled:
        chat, tasks = ChatFormat(load_tokenizer(model_folder(model))), shown_tasks(ctx, tasks_folder)
        make = policy_examples if option == "policy" else reward_examples
        examples = make(ctx, chat, tasks, config)
        if option == "rm" and calibration.steps:
            then = judge_examples(ctx, chat, tasks, calibration, alike=0, purpose="calibration"), calibration
    if ctx.config.warm_start.enabled and (not examples or (then and not then[0])):
        raise UserError(f"{out}: no demonstration fits model.context = {ctx.config.model.context}; raise it")
    if not examples:
        carry_over(open_to_train(model), out, metrics={"examples": 0}, record=marker)
        return
    ctx.progress.start(f"warm-start {option}", total=config.steps + (calibration.steps if then else 0))
    sft(
        model_folder=model,
        out=out,
        examples=examples,
        config=config,
        seed=derive(ctx.config.seed, "warm-start", option) % 2**32,
        threads=ctx.config.warm_start.threads,
        log=lambda step: ctx.progress.advance(**step),
        record=marker,
        then=then,
    )


def shown_tasks(ctx: StageContext, tasks_folder: Path) -> list[Task]:
    """The tasks that are demonstrated. A small pool is soon learnt by heart: scenes of their own may be asked for."""
    scenes = ctx.config.warm_start.scenes
    if not scenes:
        return read_tasks(tasks_folder)
    config = replace(ctx.config.tasks, train_scenes=scenes)
    seed = derive(ctx.config.seed, "warm-start scenes")
    return setting(ctx.config.env.name).make_tasks(config, seed=seed, split=config.train_split, env=ctx.config.env)
