"""Prompts with pictures out of prompts that are texts, for policy and judge.

A prompt with a layout of its own (`rla.envs.pictures`) says where its pictures stand. In all others they stand before
the text of the last turn, the oldest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rla.envs.pictures import PastStep, Picture, PictureMessage, PicturesJudge, PicturesPolicy
from rla.envs.prompts import JudgePrompt, PolicyPrompt
from rla.envs.views import JudgeView, Message


def with_pictures_last(messages: Sequence[Message], pngs: Iterable[bytes]) -> list[PictureMessage]:
    """The turns, with pictures at the head of the last one."""
    *before, last = messages
    told = [PictureMessage(role=one["role"], parts=(one["content"],)) for one in before]
    return [*told, PictureMessage(role=last["role"], parts=(*map(Picture, pngs), last["content"]))]


def window_with_pictures(
    prompt: PolicyPrompt,
    history: Sequence[PastStep],
    observation: str,
    images: Sequence[bytes],
    commands: Sequence[str],
    instruction: str,
) -> list[PictureMessage]:
    """What a policy is asked with `policy.history: window`: pictures of `history`, as far as it has any, and of now."""
    if isinstance(prompt, PicturesPolicy):
        return prompt.with_pictures(history, observation, images, commands, instruction)
    told = prompt.window([(one.observation, one.action) for one in history], observation, commands, instruction)
    return with_pictures_last(told, [*(png for one in history for png in one.images), *images])


def judged_with_pictures(prompt: JudgePrompt, view: JudgeView) -> list[PictureMessage]:
    """What a judge is asked about a step: pictures from before it, then those of what followed."""
    if isinstance(prompt, PicturesJudge):
        return prompt.with_pictures(view)
    return with_pictures_last(
        prompt.messages(view), [*(png for shown in view.images for png in shown), *view.next_images]
    )
