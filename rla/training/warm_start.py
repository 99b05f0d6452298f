"""The warm start of one model: examples for the policy or the reward model, then supervised training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rla.config.judging import JudgeConfig
from rla.config.training import SftConfig
from rla.envs.pictures import shows_images
from rla.envs.registry import environment
from rla.errors import UserError
from rla.llm.chat import ChatFormat
from rla.llm.picture_chat import PictureChat
from rla.llm.ray_cluster import engines_asleep
from rla.models.checkpoint import model_folder
from rla.models.verifying import verify_model
from rla.models.vision import vision_for
from rla.pipeline.context import StageContext
from rla.seeds import derive
from rla.store.pools import read_tasks
from rla.store.records import Task
from rla.training.conversing import conversation_examples
from rla.training.failed_scenes import FailedScenes
from rla.training.lessons import judge_examples, policy_examples, reward_examples

if TYPE_CHECKING:
    from rla.training.sft import Example


def warm_start_model(
    ctx: StageContext,
    option: str,
    *,
    model: Path,
    out: Path,
    config: SftConfig,
    tasks_folder: Path,
    marker: dict[str, Any],
    sources: Sequence[Path] | None = None,
) -> None:
    """`sources`: of conversations that the policy learns from, in place of demonstrations. A model that shall learn for
    no step is carried over as it is.
    """
    from rla.models.load import load_tokenizer
    from rla.training.checkpoint_writing import carry_over
    from rla.training.complete import open_to_train
    from rla.training.sft import sft

    examples: list[Example] = []
    then: tuple[list[Example], SftConfig] | None = None
    calibration, expert = ctx.config.warm_start.calibration, ctx.config.warm_start.expert
    failed = FailedScenes(f"{option} episodes", config.examples)
    then_failed = FailedScenes("calibration episodes", calibration.examples)
    expert_failed = FailedScenes("expert episodes", expert.examples)
    taught = ctx.config.warm_start.enabled and (option == "policy" or judged_here(ctx.config.judge))
    if taught:
        verify_model(model_folder(model))
        tokenizer = load_tokenizer(model_folder(model))
        chat, tasks = ChatFormat(tokenizer), shown_tasks(ctx, tasks_folder)
        pictures = picture_chat(ctx, chat, model)
        if option == "policy" and sources is not None:
            if pictures is not None:
                raise UserError(
                    f"warm_start.conversations: {sources[0]} holds texts, and the policy is shown pictures; leave it "
                    "empty, and the policy learns from demonstrations"
                )
            examples = conversation_examples(ctx, tokenizer, sources, config)
        else:
            make = policy_examples if option == "policy" else reward_examples
            examples = make(ctx, chat, tasks, config, pictures, failed=failed)
        if option == "policy" and expert.trains:
            then = examples, config
            config = expert
            examples = policy_examples(ctx, chat, tasks, config, pictures, failed=expert_failed, purpose="expert")
        if option == "rm" and calibration.trains:
            more = judge_examples(
                ctx,
                chat,
                tasks,
                calibration,
                alike=0,
                purpose="calibration",
                pictures=pictures,
                failed=then_failed,
            )
            then = more, calibration
    if taught and (not examples or (then and not then[0])):
        raise UserError(f"{out}: no demonstration fits model.context = {ctx.config.model.context}; raise it")
    if not examples:
        carry_over(open_to_train(model), out, metrics={"examples": 0}, record=marker, replace=ctx.overwrite)
        return
    engines_asleep(ctx.config.generator)
    updates = config.updates(len(examples)) + (then[1].updates(len(then[0])) if then else 0)
    ctx.progress.start(f"warm-start {option}", total=updates)
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
        measured={"failed_episodes": failed.count + then_failed.count + expert_failed.count},
        replace=ctx.overwrite,
    )


def picture_chat(ctx: StageContext, chat: ChatFormat, model: Path) -> PictureChat | None:
    """Of a model that learns from pictures. UserError where the environment shows some and the model sees none."""
    shows = shows_images(environment(ctx.config.env.name), ctx.config)
    vision = vision_for(model_folder(model), environment=ctx.config.env.name, shows=shows)
    return None if vision is None else PictureChat(chat, vision)


def judged_here(judge: JudgeConfig) -> bool:
    """Whether a reward model of the run judges: what nobody asks is not taught."""
    return judge.enabled and judge.trains


def shown_tasks(ctx: StageContext, tasks_folder: Path) -> list[Task]:
    """The tasks that are demonstrated. A small pool is soon learnt by heart: scenes of their own may be asked for."""
    scenes = ctx.config.warm_start.scenes
    if not scenes:
        return read_tasks(tasks_folder)
    config = replace(ctx.config, tasks=replace(ctx.config.tasks, train_scenes=scenes))
    seed = derive(ctx.config.seed, "warm-start scenes")
    return environment(config.env.name).tasks(config, split=config.tasks.train_split, seed=seed)
