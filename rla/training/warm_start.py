"""The warm start of one model: examples, then supervised training.

    policy    `expert`: an expert that never errs; then `policy`: one that errs, or conversations
    rm        `reward`: labelled judgements of steps; then `calibration`: more of them, from whole episodes

Demonstrations are told to a policy agent, so their prompts equal a rollout's to the token. A scene that its
environment breaks costs its own episode, and many such scenes cost the stage (`FailedScenes`).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any, TypeVar

from rla.agents import CommandTries, PolicyAgent, check_calls, demonstrated_steps, judged_with_pictures, views
from rla.config.training import SftConfig
from rla.envs.observation import CallResult, EnvironmentFailure, Observation
from rla.envs.protocols import Demonstrates, Demonstration, Judged, Labels, Teaches, ToolPrompt, need, prefetched
from rla.envs.registry import environment
from rla.errors import UserError
from rla.llm.base import Completion, FinishReason
from rla.llm.chat import ChatFormat
from rla.llm.factory import free_memory
from rla.models.checkpoint import model_folder, verify_model
from rla.models.load import load_tokenizer
from rla.pictures.vision import PictureChat, PromptTokens, cache_keys, vision_for
from rla.pipeline import StageContext
from rla.plugins import need_package
from rla.seeds import derive
from rla.store.reading import read_tasks
from rla.store.records import Task, columns
from rla.training.checkpoints import carry_over, open_to_train
from rla.training.sequences import Example

# The trainings of each model, in order: their parameters in `warm_start`, and the purpose that seeds their episodes.
ROUNDS = {
    "policy": (("expert", "expert"), ("policy", "policy")),
    "rm": (("reward", "judge"), ("calibration", "calibration")),
}
MOST_FAILED = 0.1  # share of the scenes
OTHERS = 2  # actions not taken that the judge learns on, for each action that was taken
JUDGED = (0.0, 0.9)  # shares of random actions in the episodes that the judge learns on
Answer = TypeVar("Answer")


def warm_start_model(
    ctx: StageContext,
    option: str,
    *,
    model: Path,
    out: Path,
    tasks_folder: Path,
    marker: dict[str, Any],
    given: Callable[..., list[Example]] | None = None,
) -> None:
    """Train `model` (`option`: policy or rm) into the checkpoint `out`; one that is to learn nothing is carried over.

    `given`: makes the examples that replace the policy's demonstrations, from a tokenizer and `SftConfig`.
    """
    warm = ctx.config.warm_start
    # A judge that is not asked, or that is a server, is not taught.
    if not (warm.enabled and (option == "policy" or (ctx.config.judge.enabled and ctx.config.judge.trains))):
        carry_over(open_to_train(model), out, metrics={"examples": 0}, record=marker, replace=ctx.overwrite)
        return
    folder, env = model_folder(model), environment(ctx.config.env.name)
    verify_model(folder)
    tokenizer = load_tokenizer(folder)
    chat, tasks = ChatFormat(tokenizer), _demonstrated_tasks(ctx, tasks_folder)
    if option == "policy":
        check_calls(chat, env.policy_prompt(ctx.config), taught=True)
    vision = vision_for(env, ctx.config, folder)
    pictures = None if vision is None else PictureChat(chat, vision)
    if given is not None and pictures is not None:
        raise UserError(
            f"warm_start.conversations: {warm.conversations} holds texts, and the policy is shown pictures; "
            "leave it empty, and the policy learns from demonstrations"
        )
    rounds: list[tuple[list[Example], SftConfig]] = []
    failures = 0
    for name, purpose in ROUNDS[option]:
        config = warm.settings(name)
        if not config.trains:
            continue
        if given is not None:
            rounds.append((given(tokenizer, config), config))
            continue
        failed = FailedScenes(f"{purpose} episodes", config.examples)
        make = policy_examples if option == "policy" else reward_examples
        made = list(make(ctx, chat, tasks, config, pictures=pictures, failed=failed, purpose=purpose))
        examples = [one for one in made if one.longest <= ctx.config.model.context]
        if len(examples) < len(made):
            ctx.progress.note(f"warm-start: {len(made) - len(examples)} {name} examples are longer than model.context")
        if not examples:
            raise UserError(f"{out}: no demonstration fits model.context = {ctx.config.model.context}; raise it")
        rounds.append((examples, config))
        failures += failed.count
    lora = ctx.config.taught_by_adapter(option)
    if lora is not None:
        need_package("peft", install="rla[lora]", why="lora.rank is set")
    free_memory(ctx.config.generator)
    ctx.progress.start(f"warm-start {option}", total=sum(its.updates(len(examples)) for examples, its in rounds))
    from rla.training.sft import sft

    sft(
        model_folder=model,
        out=out,
        rounds=rounds,
        seed=derive(ctx.config.seed, "warm-start", option) % 2**32,
        log=lambda step: ctx.progress.advance(**step),
        record=marker,
        measured={"failed_episodes": failures},
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
    *,
    pictures: PictureChat | None = None,
    failed: FailedScenes,
    purpose: str = "policy",
) -> Iterator[Example]:
    """The segments of demonstrations: one per episode with `policy.history: full`, or one per step with `window`.

    Random actions are cloned like the expert's: a demonstrator that errs leaves reinforcement something to improve.
    Each `purpose` has demonstrations of its own. Replies have weight 1, and read tokens `config.observed`.
    """
    prompt, tries = environment(ctx.config.env.name).policy_prompt(ctx.config), CommandTries(chat)
    noise = (0.0, 2 * config.noise)
    for task, shown in _demonstrations(
        ctx, tasks, count=config.examples, random_shares=noise, purpose=purpose, failed=failed
    ):
        agent = PolicyAgent(
            chat=chat,
            prompt=prompt,
            config=ctx.config.policy,
            tries=tries,
            instruction=task.instruction,
            pictures=pictures,
        )
        screens = shown.images or [()] * len(shown.observations)
        for observation, commands, action, images in zip(
            shown.observations, shown.commands, shown.actions, screens, strict=False
        ):
            results = (CallResult(observation, "ok"),) if isinstance(prompt, ToolPrompt) else ()
            agent.prompt(Observation(observation, images=tuple(images), results=results), commands)
            reply = [*chat.encode(prompt.render(action, commands)), chat.end_id]
            count = len(reply)  # of tokens that were not sampled
            said = Completion(
                token_ids=reply, logprobs=[0.0] * count, allowed=[[]] * count, finish_reason=FinishReason.STOP
            )
            agent.read(said, observation, commands)
        for segment in agent.dialogue:
            weights = [1.0 if sampled else config.observed for sampled in segment.sampled]
            for one in segment.images:  # tokens of pictures, and the two that frame them, are never predicted
                weights[one.start - 1 : one.end + 1] = [0.0] * (one.length + 2)
            yield Example(token_ids=segment.token_ids, weights=weights, images=tuple(segment.images))


def reward_examples(
    ctx: StageContext,
    chat: ChatFormat,
    tasks: list[Task],
    config: SftConfig,
    *,
    pictures: PictureChat | None = None,
    failed: FailedScenes,
    purpose: str = "judge",
) -> Iterator[Example]:
    """Judgements of demonstrated steps, one example per episode, its judgements as branches of the last prompt. An
    environment may have lessons of its own on whole tasks, which replace the judgements of `purpose` judge.

    `config.noise` is the share of flipped labels. For each action that was taken, others that were not are judged in
    the same place, so that the action tells them apart and not the manner of the episode. With `warm_start.alike` an
    episode teaches the same judgement no more often than that, because nearly two thirds of all judgements repeat. It
    is then judged up to a random step only, at half the cost. The calibration shows whole episodes.
    """
    chosen = environment(ctx.config.env.name)
    if isinstance(chosen, Teaches) and purpose == "judge":
        yield from _lessons(ctx, chat, tasks, chosen, count=config.examples, failed=failed)
        return
    alike = ctx.config.warm_start.alike if purpose == "judge" else 0
    labeller = need(chosen, Labels, "warm-start")
    prompt = need(chosen, Judged, "warm-start").judge_prompt(ctx.config)
    policy_prompt = chosen.policy_prompt(ctx.config)
    rng = random.Random(derive(ctx.config.seed, "labels"))
    for task, shown in _demonstrations(
        ctx, tasks, count=config.examples, random_shares=JUDGED, purpose=purpose, failed=failed
    ):
        seed = rng.getrandbits(62)
        labels = failed.tried(partial(labeller.label, task, ctx.config, shown.actions, others=OTHERS, seed=seed))
        if labels is None:
            continue
        until = rng.randint(1, len(labels)) if alike else len(labels)
        played = list(map(columns, demonstrated_steps(shown, policy_prompt)))
        row = {"instruction": task.instruction, "steps": played, "final_observation": shown.final_observation}
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
        yield branching_example(asked, replies)


def _lessons(
    ctx: StageContext, chat: ChatFormat, tasks: list[Task], teacher: Teaches, *, count: int, failed: FailedScenes
) -> Iterator[Example]:
    """One example per lesson, its replies as branches of the prompt."""
    for number in range(count):
        seed = derive(ctx.config.seed, "lessons", number)
        lesson = failed.tried(partial(teacher.lesson, tasks[number % len(tasks)], ctx.config, seed=seed))
        if lesson is not None:
            asked = PromptTokens(ids=chat.first(lesson.messages))
            replies = [[*chat.encode(reply), chat.end_id] for reply in lesson.replies]
            yield branching_example([asked] * len(replies), replies)


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
