"""The warm start of one model: examples for the policy or the reward model, then supervised training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rla.agents.policy import check_calls
from rla.config.judging import JudgeConfig
from rla.config.training import SftConfig
from rla.envs.pictures import shows_images
from rla.envs.registry import environment
from rla.errors import UserError
from rla.llm.chat import ChatFormat
from rla.llm.factory import free_memory
from rla.llm.picture_chat import PictureChat
from rla.models.checkpoint import model_folder
from rla.models.verifying import verify_model
from rla.models.vision import vision_for
from rla.pipeline.context import StageContext
from rla.pipeline.options import implementation
from rla.seeds import derive
from rla.store.pools import read_tasks
from rla.store.records import Task
from rla.training.lessons import FailedScenes, judge_examples, policy_examples, reward_examples

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rla.training.sft import Example


class GivenExamples(Protocol):
    """What the policy learns from in place of demonstrations. `files`: those that the training depends on."""

    files: Sequence[Path]

    def examples(self, tokenizer: PreTrainedTokenizerBase, config: SftConfig) -> list[Example]:
        """All of them, at least one. Raises UserError."""
        ...


def given_examples(ctx: StageContext) -> GivenExamples | None:
    """Those that `warm_start.conversations` names; None: the policy learns from demonstrations."""
    if not (ctx.config.warm_start.conversations and ctx.config.warm_start.enabled):
        return None
    found: GivenExamples = implementation("warm_start.conversations")(ctx)
    return found


def warm_start_model(
    ctx: StageContext,
    option: str,
    *,
    model: Path,
    out: Path,
    config: SftConfig,
    tasks_folder: Path,
    marker: dict[str, Any],
    given: GivenExamples | None = None,
) -> None:
    """`given`: what the policy learns from in place of demonstrations. A model that shall learn for no step is carried
    over as it is.
    """
    from rla.models.load import load_tokenizer
    from rla.training.checkpoints import carry_over, open_to_train
    from rla.training.sft import sft

    parts: list[tuple[list[Example], SftConfig]] = []
    purpose = "expert" if option == "policy" else "calibration"
    further: SftConfig = getattr(ctx.config.warm_start, purpose)
    failed = FailedScenes(f"{option} episodes", config.examples)
    further_failed = FailedScenes(f"{purpose} episodes", further.examples)
    taught = ctx.config.warm_start.enabled and (option == "policy" or judged_here(ctx.config.judge))
    if taught:
        verify_model(model_folder(model))
        tokenizer = load_tokenizer(model_folder(model))
        chat, tasks = ChatFormat(tokenizer), shown_tasks(ctx, tasks_folder)
        if option == "policy":
            check_calls(chat, environment(ctx.config.env.name).policy_prompt(ctx.config), taught=True)
        pictures = picture_chat(ctx, chat, model)
        if option == "policy" and given is not None:
            if pictures is not None:
                raise UserError(
                    f"warm_start.conversations: {ctx.config.warm_start.conversations} holds texts, and the policy is "
                    "shown pictures; leave it empty, and the policy learns from demonstrations"
                )
            examples = given.examples(tokenizer, config)
        else:
            make = policy_examples if option == "policy" else reward_examples
            examples = make(ctx, chat, tasks, config, pictures, failed=failed)
        parts.append((examples, config))
        if further.trains:
            again = policy_examples if option == "policy" else partial(judge_examples, alike=0)
            more = again(ctx, chat, tasks, further, pictures=pictures, failed=further_failed, purpose=purpose)
            # The expert comes before the demonstrator that errs, the calibration after the judge's other lessons.
            parts.insert(0 if option == "policy" else 1, (more, further))
    if not all(examples for examples, _ in parts):
        raise UserError(f"{out}: no demonstration fits model.context = {ctx.config.model.context}; raise it")
    if not parts:
        carry_over(open_to_train(model), out, metrics={"examples": 0}, record=marker, replace=ctx.overwrite)
        return
    free_memory(ctx.config.generator)
    ctx.progress.start(f"warm-start {option}", total=sum(its.updates(len(examples)) for examples, its in parts))
    (first, first_config), *then = parts
    sft(
        model_folder=model,
        out=out,
        examples=first,
        config=first_config,
        seed=derive(ctx.config.seed, "warm-start", option) % 2**32,
        threads=ctx.config.warm_start.threads,
        log=lambda step: ctx.progress.advance(**step),
        record=marker,
        then=then[0] if then else None,
        measured={"failed_episodes": failed.count + further_failed.count},
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
