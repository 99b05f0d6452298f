"""Demonstrations as the policy itself would meet them: a policy agent that is told what the expert says.

So prompts are those of a rollout to the token, whatever `policy.history` is, and pictures stand where they stand there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rla.agents.policy import CommandTries, Growing, PolicyAgent
from rla.config.training import SftConfig
from rla.envs.pictures import shows_images
from rla.envs.registry import environment
from rla.envs.views import Demonstration
from rla.llm.base import Completion, FinishReason
from rla.llm.chat import ChatFormat
from rla.llm.picture_chat import PictureChat
from rla.pipeline.context import StageContext
from rla.store.records import Task

if TYPE_CHECKING:
    from rla.training.sft import Example


def as_it_is_asked(ctx: StageContext) -> bool:
    """Whether demonstrations must be told by an agent: growing texts are built without one."""
    return ctx.config.policy.history == "window" or shows_images(environment(ctx.config.env.name), ctx.config)


def dialogue_examples(
    ctx: StageContext,
    chat: ChatFormat,
    pictures: PictureChat | None,
    task: Task,
    shown: Demonstration,
    config: SftConfig,
) -> Iterator[Example]:
    """One example a segment: with `policy.history: window` one a step. Those that do not fit are left out."""
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
        agent.read(unsampled_reply(reply), observation, commands)
    for segment in agent.dialogue():
        if len(segment.token_ids) <= ctx.config.model.context:
            yield taught_segment(segment, config)


def unsampled_reply(reply: list[int]) -> Completion:
    """A reply that nobody sampled."""
    count = len(reply)
    return Completion(token_ids=reply, logprobs=[0.0] * count, allowed=[[]] * count, finish_reason=FinishReason.STOP)


def taught_segment(segment: Growing, config: SftConfig) -> Example:
    """What is said counts whole, what is read counts `config.observed`; tokens of pictures are never predicted."""
    from rla.training.sft import Example

    weights = [1.0 if sampled else config.observed for sampled in segment.sampled]
    for one in segment.images:
        weights[one.start - 1 : one.end + 1] = [0.0] * (one.length + 2)  # with the two tokens that frame them
    return Example(token_ids=segment.token_ids, weights=weights, images=tuple(segment.images))
