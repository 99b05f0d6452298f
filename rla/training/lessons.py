"""What `warm-start` teaches: expert episodes for the policy, labelled judgements of steps for the reward model."""

from __future__ import annotations

import operator
import random
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, cycle, islice
from typing import TYPE_CHECKING, Any

from rla.agents.judge import judged_with_pictures, views
from rla.config.training import SftConfig
from rla.envs.needing import need
from rla.envs.prompts import JudgePrompt, ToolPrompt, told_schemas
from rla.envs.protocols import Demonstrates, Judged, Labels, Teaches
from rla.envs.registry import environment
from rla.envs.together import at_once, begun
from rla.envs.views import Demonstration, JudgeView
from rla.llm.base import cache_keys
from rla.llm.chat import ChatFormat
from rla.llm.picture_chat import PictureChat, PromptTokens
from rla.pipeline.context import StageContext
from rla.seeds import derive
from rla.store.records import Task
from rla.training.dialogues import as_it_is_asked, dialogue_examples
from rla.training.failed_scenes import FailedScenes

if TYPE_CHECKING:
    from rla.training.sft import Example

OTHERS = 2  # actions not taken that the judge learns on beside each that was
JUDGED = (0.0, 0.9)  # shares of random actions in the episodes that the judge learns on


def demonstrations(
    ctx: StageContext,
    tasks: list[Task],
    *,
    count: int,
    random_shares: tuple[float, float],
    purpose: str,
    failed: FailedScenes,
) -> list[tuple[Task, Demonstration]]:
    """`count` expert episodes over the tasks in turn, without those `failed`; each one's share of random actions is
    drawn between bounds.
    """
    player = need(environment(ctx.config.env.name), Demonstrates, "warm-start")
    rng = random.Random(derive(ctx.config.seed, "demonstrations", purpose))
    played = []
    ctx.progress.start(f"warm-start {purpose} demonstrations", total=count)
    asked = list(islice(cycle(tasks), count))
    calls = (
        partial(
            player.demonstrate, task, ctx.config, seed=rng.getrandbits(62), random_share=rng.uniform(*random_shares)
        )
        for task in asked
    )
    for task, episode in zip(asked, begun(calls, at_once(player, ctx.config)), strict=True):
        shown = failed.tried(episode)
        if shown is not None:
            played.append((task, shown))
        ctx.progress.advance()
    return played


def policy_examples(
    ctx: StageContext,
    chat: ChatFormat,
    tasks: list[Task],
    config: SftConfig,
    pictures: PictureChat | None = None,
    *,
    failed: FailedScenes,
    purpose: str = "policy",
) -> list[Example]:
    """One growing sequence per episode, as a rollout with `history: full` would see it. With `history: window`, and
    where the model sees pictures, an agent is told what the expert says (`rla.training.dialogues`).

    Random actions are cloned like the expert's: a demonstrator that errs leaves reinforcement something to mend.
    `purpose`: of the demonstrations; each has episodes of its own.
    """
    prompt = environment(ctx.config.env.name).policy_prompt(ctx.config)
    from rla.training.sft import Example

    examples: list[Example] = []
    for task, shown in demonstrations(
        ctx, tasks, count=config.examples, random_shares=(0.0, 2 * config.noise), purpose=purpose, failed=failed
    ):
        if as_it_is_asked(ctx):
            examples += dialogue_examples(ctx, chat, pictures, task, shown, config)
            continue
        ids: list[int] = []
        weights: list[float] = []
        for index, (observation, commands, action) in enumerate(
            zip(shown.observations, shown.commands, shown.actions, strict=True)
        ):
            if index == 0:
                asked = chat.first(prompt.opening(observation, commands), told_schemas(prompt))
            elif isinstance(prompt, ToolPrompt):
                asked = chat.next_turns([observation], ended=True, role=prompt.result_role)
            else:
                asked = chat.next_turn(prompt.turn(observation, commands, task.instruction), ended=True)
            reply = [*chat.encode(prompt.render(action, commands)), chat.end_id]
            ids += asked + reply
            weights += [config.observed] * len(asked) + [1.0] * len(reply)
        if len(ids) <= ctx.config.model.context:
            examples.append(Example(token_ids=ids, weights=weights))
    if not as_it_is_asked(ctx):
        say_left_out(ctx, failed.whole - len(examples), "demonstrations")
    return examples


def say_left_out(ctx: StageContext, count: int, what: str) -> None:
    if count:
        ctx.progress.note(f"warm-start: {count} {what} are longer than model.context")


def reward_examples(
    ctx: StageContext,
    chat: ChatFormat,
    tasks: list[Task],
    config: SftConfig,
    pictures: PictureChat | None = None,
    *,
    failed: FailedScenes,
) -> list[Example]:
    """Judgements of demonstrated steps, or what the environment teaches on whole tasks: an example is a task's lesson,
    its replies as branches of the prompt.
    """
    teacher = environment(ctx.config.env.name)
    if not isinstance(teacher, Teaches):
        alike = ctx.config.warm_start.alike
        return judge_examples(ctx, chat, tasks, config, alike=alike, pictures=pictures, failed=failed)
    examples = []
    for number in range(config.examples):
        seed = derive(ctx.config.seed, "lessons", number)
        lesson = failed.tried(partial(teacher.lesson, tasks[number % len(tasks)], ctx.config, seed=seed))
        if lesson is None:
            continue
        asked = PromptTokens(ids=chat.first(lesson.messages))
        replies = [[*chat.encode(reply), chat.end_id] for reply in lesson.replies]
        if len(asked.ids) + max(map(len, replies)) <= ctx.config.model.context:
            examples.append(branching([asked] * len(replies), replies))
    say_left_out(ctx, failed.whole - len(examples), "lessons")
    return examples


def judge_examples(
    ctx: StageContext,
    chat: ChatFormat,
    tasks: list[Task],
    config: SftConfig,
    *,
    alike: int,
    purpose: str = "judge",
    pictures: PictureChat | None = None,
    failed: FailedScenes,
) -> list[Example]:
    """One example per episode, its judgements as branches of the last prompt; `noise`: share of flipped labels.

    Beside each action that was taken, others are judged that were not: in the same place, so that what tells them
    apart is the action, not the manner of the episode. With `alike` an episode teaches the same judgement no more
    often than that: nearly two thirds of all are returns and vain looks. It is then judged up to a random step alone,
    which costs half as much. `purpose`: of the demonstrations; each has episodes of its own. `pictures`: of a judge
    that sees them. `failed`: counts the episodes that fail as they are played or labelled.
    """
    chosen = environment(ctx.config.env.name)
    labeller = need(chosen, Labels, "warm-start")
    prompt = need(chosen, Judged, "warm-start").judge_prompt(ctx.config)
    policy_prompt = chosen.policy_prompt(ctx.config)
    rng = random.Random(derive(ctx.config.seed, "labels"))
    examples: list[Example] = []
    for task, shown in demonstrations(
        ctx, tasks, count=config.examples, random_shares=JUDGED, purpose=purpose, failed=failed
    ):
        seed = rng.getrandbits(62)
        labels = failed.tried(partial(labeller.label, task, ctx.config, shown.actions, others=OTHERS, seed=seed))
        if labels is None:
            continue
        until = rng.randint(1, len(labels)) if alike else len(labels)
        row = as_row(task, shown, policy_prompt.render)
        steps = zip(views(row, shown.images, images=ctx.config.judge.images), labels, strict=True)
        judged = [
            (view, one, rng.random() < config.noise)
            for view, labelled in islice(steps, until)
            for one in reversed(labelled)  # the action taken last: its prompt shares most with those that follow
        ]
        asked, replies = [], []
        for number in few_alike(rng, [(one.score, one.reason) for _, one, _ in judged], alike):
            view, one, flipped = judged[number]
            said = policy_prompt.render(one.action, view.commands)
            tried = replace(
                view,
                action=one.action,
                reply=said,
                next_observation=one.next_observation,
                next_images=one.next_images,
            )
            asked.append(judge_prompt_tokens(chat, prompt, tried, pictures))
            reply = prompt.render(-one.score if flipped else one.score, one.reason)
            replies.append([*chat.encode(reply), chat.end_id])
        if max(map(operator.add, (len(one.ids) for one in asked), map(len, replies))) <= ctx.config.model.context:
            examples.append(branching(asked, replies))
    say_left_out(ctx, failed.whole - len(examples), "judged episodes")
    return examples


def judge_prompt_tokens(
    chat: ChatFormat, prompt: JudgePrompt, view: JudgeView, pictures: PictureChat | None
) -> PromptTokens:
    """What the judge is asked about a step."""
    if pictures is None:
        return PromptTokens(ids=chat.first(prompt.messages(view)))
    return pictures.first(judged_with_pictures(prompt, view))


def few_alike(rng: random.Random, kinds: Sequence[Hashable], most: int) -> list[int]:
    """The places of at most `most` of each kind, drawn at random, in their order; 0: of all."""
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, kind in enumerate(kinds):
        places[kind].append(place)
    drawn = (rng.sample(alike, min(most or len(alike), len(alike))) for alike in places.values())
    return sorted(chain.from_iterable(drawn))


def branching(prompts: list[PromptTokens], replies: list[list[int]]) -> Example:
    """The last prompt as the trunk; each reply, with what its own prompt does not share with the trunk, as a branch.
    Tokens of different pictures are different ones.
    """
    from rla.training.sft import Example

    last = prompts[-1]
    trunk = cache_keys(last.ids, last.images).tolist()
    ids, weights, images = list(last.ids), [0.0] * len(trunk), list(last.images)
    branches = []
    for prompt, reply in zip(prompts, replies, strict=True):
        keys = cache_keys(prompt.ids, prompt.images).tolist()
        # The token that predicts a branch's first one must stand in the branch.
        limit = min(len(keys), len(trunk)) - 1
        anchor = next((n for n in range(limit) if keys[n] != trunk[n]), limit)
        own = prompt.ids[anchor:]
        images += [one for one in prompt.behind(len(ids) - anchor) if one.start >= len(ids)]
        branches.append((len(ids), len(ids) + len(own) + len(reply), anchor))
        ids += own + reply
        weights += [0.0] * len(own) + [1.0] * len(reply)
    return Example(token_ids=ids, weights=weights, branches=branches, images=tuple(images))


def as_row(task: Task, shown: Demonstration, render: Any) -> dict[str, Any]:
    """A demonstration in the columns of a trajectory row that a judge reads."""
    steps = [
        {
            "observation": observation,
            "commands": commands,
            "reply": render(action, commands),
            "action": action,
            "valid": True,
        }
        for observation, commands, action in zip(shown.observations, shown.commands, shown.actions, strict=True)
    ]
    return {
        "instruction": task.instruction,
        "steps": steps,
        "final_observation": shown.final_observation,
    }
