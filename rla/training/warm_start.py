"""The warm start of one model: examples, then supervised training.

The policy learns from expert episodes, the reward model from labelled judgements of steps. A scene that its environment
breaks costs its own episode, and many such scenes cost the stage (`FailedScenes`). Demonstrations with pictures or a
window of the history are made by a policy agent that is told the expert's replies (`_agent_examples`), so their prompts
equal those of a rollout to the token.
"""

from __future__ import annotations

import operator
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rla.agents import CommandTries, PolicyAgent, check_calls, judged_with_pictures, views
from rla.config.training import SftConfig
from rla.envs.observation import EnvironmentFailure
from rla.envs.protocols import Demonstrates, Judged, Labels, Teaches, ToolPrompt, need, prefetched, told_schemas
from rla.envs.registry import environment
from rla.envs.views import Demonstration
from rla.errors import UserError
from rla.llm.base import Completion, FinishReason
from rla.llm.chat import ChatFormat
from rla.llm.factory import free_memory
from rla.models.checkpoint import model_folder
from rla.models.verifying import verify_model
from rla.pictures.prompts import shows_images
from rla.pictures.vision import PictureChat, PromptTokens, cache_keys, vision_for
from rla.pipeline.context import StageContext, implementation
from rla.plugins import need_package
from rla.seeds import derive
from rla.store.reading import read_tasks
from rla.store.records import Task
from rla.training.checkpoints import carry_over, open_to_train
from rla.training.sequences import Example

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MOST_FAILED = 0.1  # share of the scenes
OTHERS = 2  # actions not taken that the judge learns on, for each action that was taken
JUDGED = (0.0, 0.9)  # shares of random actions in the episodes that the judge learns on
Answer = TypeVar("Answer")


class GivenExamples(Protocol):
    """Examples that replace the policy's demonstrations. `files`: the files that they come from."""

    files: Sequence[Path]

    def examples(self, tokenizer: PreTrainedTokenizerBase, config: SftConfig) -> list[Example]:
        """All of them, at least one. Raises UserError."""
        ...


def given_examples(ctx: StageContext) -> GivenExamples | None:
    """The examples that `warm_start.conversations` names, or None if the policy learns from demonstrations."""
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
    tasks_folder: Path,
    marker: dict[str, Any],
    given: GivenExamples | None = None,
) -> None:
    """Train `model` (`option`: policy or rm) into the checkpoint `out`; one that is to learn nothing is carried over.

    `given`: examples that replace the policy's demonstrations.
    """
    warm, policy = ctx.config.warm_start, option == "policy"
    purpose = "expert" if policy else "calibration"
    config, further = warm.settings("policy" if policy else "reward"), warm.settings(purpose)
    parts: list[tuple[list[Example], SftConfig]] = []
    failed = FailedScenes(f"{option} episodes", config.examples)
    further_failed = FailedScenes(f"{purpose} episodes", further.examples)
    # A judge that is not asked, or that is a server, is not taught.
    if warm.enabled and (policy or (ctx.config.judge.enabled and ctx.config.judge.trains)):
        from rla.models.load import load_tokenizer

        folder, env = model_folder(model), environment(ctx.config.env.name)
        verify_model(folder)
        tokenizer = load_tokenizer(folder)
        chat, tasks = ChatFormat(tokenizer), _demonstrated_tasks(ctx, tasks_folder)
        if policy:
            check_calls(chat, env.policy_prompt(ctx.config), taught=True)
        vision = vision_for(env, ctx.config, folder)
        pictures = None if vision is None else PictureChat(chat, vision)
        if policy and given is not None:
            if pictures is not None:
                raise UserError(
                    f"warm_start.conversations: {warm.conversations} holds texts, and the policy is shown pictures; "
                    "leave it empty, and the policy learns from demonstrations"
                )
            examples = given.examples(tokenizer, config)
        else:
            make = policy_examples if policy else reward_examples
            examples = make(ctx, chat, tasks, config, pictures, failed=failed)
        parts.append((examples, config))
        if further.trains:
            again = policy_examples if policy else partial(_judge_examples, alike=0)
            more = again(ctx, chat, tasks, further, pictures=pictures, failed=further_failed, purpose=purpose)
            # The expert comes before the demonstrator that errs, the calibration after the judge's other lessons.
            parts.insert(0 if policy else 1, (more, further))
    if not all(examples for examples, _ in parts):
        raise UserError(f"{out}: no demonstration fits model.context = {ctx.config.model.context}; raise it")
    if not parts:
        carry_over(open_to_train(model), out, metrics={"examples": 0}, record=marker, replace=ctx.overwrite)
        return
    lora = ctx.config.taught_by_adapter(option)
    if lora is not None:
        need_package("peft", install="rla[lora]", why="lora.rank is set")
    free_memory(ctx.config.generator)
    ctx.progress.start(f"warm-start {option}", total=sum(its.updates(len(examples)) for examples, its in parts))
    from rla.training.sft import sft

    (first, first_config), *then = parts
    sft(
        model_folder=model,
        out=out,
        examples=first,
        config=first_config,
        seed=derive(ctx.config.seed, "warm-start", option) % 2**32,
        threads=warm.threads,
        log=lambda step: ctx.progress.advance(**step),
        record=marker,
        then=then[0] if then else None,
        measured={"failed_episodes": failed.count + further_failed.count},
        replace=ctx.overwrite,
        lora=lora,
    )


def _demonstrated_tasks(ctx: StageContext, tasks_folder: Path) -> list[Task]:
    """The tasks to demonstrate. A small pool is soon learnt by heart, so `warm_start.scenes` makes further scenes."""
    scenes = ctx.config.warm_start.scenes
    if not scenes:
        return read_tasks(tasks_folder)
    config = replace(ctx.config, tasks=replace(ctx.config.tasks, train_scenes=scenes))
    seed = derive(ctx.config.seed, "warm-start scenes")
    return environment(config.env.name).tasks(config, split=config.tasks.train_split, seed=seed)


@dataclass(slots=True)
class FailedScenes:
    """Counts the scenes, of `asked`, that failed while they were demonstrated or labelled."""

    what: str  # such as "policy episodes"
    asked: int
    count: int = 0

    @property
    def whole(self) -> int:
        """How many did not fail, once all were tried."""
        return self.asked - self.count

    def tried(self, scene: Callable[[], Answer]) -> Answer | None:
        """The result of `scene`, or None if its environment fails. Raises UserError at the first failure too many: an
        environment that is gone fails in every scene, and each failure may cost a minute.
        """
        try:
            return scene()
        except EnvironmentFailure as failure:
            self.count += 1
            if self.count > MOST_FAILED * self.asked:
                raise UserError(
                    f"warm-start: {self.count} of {self.asked} {self.what} failed with their environment, more than "
                    f"{MOST_FAILED:.0%}; the last one: {failure}. Mend the cause (`rla envs --check` plays the "
                    "environment) and call the stage again, or set warm_start.enabled: false"
                ) from failure
            return None


def needs_agent(ctx: StageContext) -> bool:
    """Whether demonstrations must be told to an agent. Growing texts are built without one."""
    return ctx.config.policy.history == "window" or shows_images(environment(ctx.config.env.name), ctx.config)


def _agent_examples(
    ctx: StageContext,
    chat: ChatFormat,
    pictures: PictureChat | None,
    task: Task,
    shown: Demonstration,
    config: SftConfig,
) -> Iterator[Example]:
    """One example for each segment (with `policy.history: window`, each step) that fits the context."""
    prompt = environment(ctx.config.env.name).policy_prompt(ctx.config)
    agent = PolicyAgent(
        chat=chat,
        prompt=prompt,
        config=ctx.config.policy,
        tries=CommandTries(chat),
        instruction=task.instruction,
        pictures=pictures,
    )
    screens = shown.images or [()] * len(shown.observations)
    for observation, commands, action, images in zip(
        shown.observations, shown.commands, shown.actions, screens, strict=False
    ):
        agent.prompt(observation, commands, images=tuple(images))
        reply = [*chat.encode(prompt.render(action, commands)), chat.end_id]
        count = len(reply)  # of tokens that were not sampled
        said = Completion(
            token_ids=reply, logprobs=[0.0] * count, allowed=[[]] * count, finish_reason=FinishReason.STOP
        )
        agent.read(said, observation, commands)
    for segment in agent.dialogue:
        if len(segment.token_ids) > ctx.config.model.context:
            continue
        weights = [1.0 if sampled else config.observed for sampled in segment.sampled]
        for one in segment.images:  # tokens of pictures, and the two that frame them, are never predicted
            weights[one.start - 1 : one.end + 1] = [0.0] * (one.length + 2)
        yield Example(token_ids=segment.token_ids, weights=weights, images=tuple(segment.images))


def _demonstrations(
    ctx: StageContext,
    tasks: list[Task],
    *,
    count: int,
    random_shares: tuple[float, float],
    purpose: str,
    failed: FailedScenes,
) -> list[tuple[Task, Demonstration]]:
    """`count` expert episodes over the tasks in turn, less the failed ones. Each draws its share of random actions
    between two bounds.
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
    for task, episode in zip(asked, prefetched(calls, player, ctx.config), strict=True):
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
    """One growing sequence per episode, as a rollout with `history: full` sees it, or the segments of an agent.

    Random actions are cloned like the expert's: a demonstrator that errs leaves reinforcement something to improve.
    Each `purpose` has demonstrations of its own. Replies have weight 1, and read tokens `config.observed`.
    """
    prompt = environment(ctx.config.env.name).policy_prompt(ctx.config)
    played = _demonstrations(
        ctx, tasks, count=config.examples, random_shares=(0.0, 2 * config.noise), purpose=purpose, failed=failed
    )
    if needs_agent(ctx):
        return [one for task, shown in played for one in _agent_examples(ctx, chat, pictures, task, shown, config)]
    examples: list[Example] = []
    for task, shown in played:
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
    _note_left_out(ctx, failed.whole - len(examples), "demonstrations")
    return examples


def _note_left_out(ctx: StageContext, count: int, kind: str) -> None:
    if count:
        ctx.progress.note(f"warm-start: {count} {kind} are longer than model.context")


def reward_examples(
    ctx: StageContext,
    chat: ChatFormat,
    tasks: list[Task],
    config: SftConfig,
    pictures: PictureChat | None = None,
    *,
    failed: FailedScenes,
) -> list[Example]:
    """Judgements of demonstrated steps, or the environment's own lessons on whole tasks: one example for each lesson,
    its replies as branches of the prompt.
    """
    teacher = environment(ctx.config.env.name)
    if not isinstance(teacher, Teaches):
        alike = ctx.config.warm_start.alike
        return _judge_examples(ctx, chat, tasks, config, alike=alike, pictures=pictures, failed=failed)
    examples = []
    for number in range(config.examples):
        seed = derive(ctx.config.seed, "lessons", number)
        lesson = failed.tried(partial(teacher.lesson, tasks[number % len(tasks)], ctx.config, seed=seed))
        if lesson is None:
            continue
        asked = PromptTokens(ids=chat.first(lesson.messages))
        replies = [[*chat.encode(reply), chat.end_id] for reply in lesson.replies]
        if len(asked.ids) + max(map(len, replies)) <= ctx.config.model.context:
            examples.append(branching_example([asked] * len(replies), replies))
    _note_left_out(ctx, failed.whole - len(examples), "lessons")
    return examples


def _judge_examples(
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
    """One example per episode, its judgements as branches of the last prompt; `noise`: the share of flipped labels.

    For each action that was taken, others that were not are judged in the same place, so that the action tells them
    apart and not the manner of the episode. With `alike` an episode teaches the same judgement no more often than that,
    because nearly two thirds of all judgements repeat. It is then judged up to a random step only, at half the cost.
    Each `purpose` has episodes of its own. `pictures`: the chat of a judge that sees pictures.
    """
    chosen = environment(ctx.config.env.name)
    labeller = need(chosen, Labels, "warm-start")
    prompt = need(chosen, Judged, "warm-start").judge_prompt(ctx.config)
    policy_prompt = chosen.policy_prompt(ctx.config)
    rng = random.Random(derive(ctx.config.seed, "labels"))
    examples: list[Example] = []
    for task, shown in _demonstrations(
        ctx, tasks, count=config.examples, random_shares=JUDGED, purpose=purpose, failed=failed
    ):
        seed = rng.getrandbits(62)
        labels = failed.tried(partial(labeller.label, task, ctx.config, shown.actions, others=OTHERS, seed=seed))
        if labels is None:
            continue
        until = rng.randint(1, len(labels)) if alike else len(labels)
        row = _as_row(task, shown, policy_prompt.render)
        steps = zip(views(row, shown.images, images=ctx.config.judge.images), labels, strict=True)
        judged = [
            (view, one, rng.random() < config.noise)
            for view, labelled in islice(steps, until)
            for one in reversed(labelled)  # the taken action last: its prompt shares most with those that follow
        ]
        asked, replies = [], []
        for number in few_alike(rng, [(one.score, one.reason) for _, one, _ in judged], alike):
            view, one, flipped = judged[number]
            tried = replace(
                view,
                action=one.action,
                reply=policy_prompt.render(one.action, view.commands),
                next_observation=one.next_observation,
                next_images=one.next_images,
            )
            if pictures is None:
                asked.append(PromptTokens(ids=chat.first(prompt.messages(tried))))
            else:
                asked.append(pictures.first(judged_with_pictures(prompt, tried)))
            reply = prompt.render(-one.score if flipped else one.score, one.reason)
            replies.append([*chat.encode(reply), chat.end_id])
        if max(map(operator.add, (len(one.ids) for one in asked), map(len, replies))) <= ctx.config.model.context:
            examples.append(branching_example(asked, replies))
    _note_left_out(ctx, failed.whole - len(examples), "judged episodes")
    return examples


def few_alike(rng: random.Random, kinds: Sequence[Hashable], most: int) -> list[int]:
    """The indices of at most `most` of each kind (0: all), drawn at random, in their order."""
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for place, kind in enumerate(kinds):
        places[kind].append(place)
    drawn = (rng.sample(alike, min(most or len(alike), len(alike))) for alike in places.values())
    return sorted(chain.from_iterable(drawn))


def branching_example(prompts: list[PromptTokens], replies: list[list[int]]) -> Example:
    """The last prompt as the trunk; each reply, after the part of its prompt that differs from the trunk, as a branch.

    Tokens of different pictures count as different.
    """
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
        images += [one for one in prompt.shifted(len(ids) - anchor) if one.start >= len(ids)]
        branches.append((len(ids), len(ids) + len(own) + len(reply), anchor))
        ids += own + reply
        weights += [0.0] * len(own) + [1.0] * len(reply)
    return Example(token_ids=ids, weights=weights, branches=branches, images=tuple(images))


def _as_row(task: Task, shown: Demonstration, render: Any) -> dict[str, Any]:
    """A demonstration in the columns of a trajectory row that a judge reads."""
    told = zip(shown.observations, shown.commands, shown.actions, strict=True)
    steps = [
        {
            "observation": observation,
            "commands": commands,
            "reply": render(action, commands),
            "action": action,
            "valid": True,
        }
        for observation, commands, action in told
    ]
    return {"instruction": task.instruction, "steps": steps, "final_observation": shown.final_observation}
