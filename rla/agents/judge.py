"""The judge's view of the steps of a trajectory, and its prompts with pictures.

The judge never sees the outcome. The policy's text stands in its prompt as quoted data: `ChatFormat` encodes contents
so that control tokens in them cannot act.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from rla.agents.policy import with_pictures_last
from rla.envs.protocols import JudgePrompt, JudgeView
from rla.pictures.prompts import PictureMessage, PicturesJudge


def views(
    trajectory: Mapping[str, Any], screens: Sequence[tuple[bytes, ...]] = (), *, images: int = 1
) -> Iterator[JudgeView]:
    """The view of each step of a trajectory row, in order.

    `screens`: the pictures of every observation; the last `images` of them before an action are shown.
    """
    steps = trajectory["steps"]
    history: list[tuple[str, str]] = []
    for index, step in enumerate(steps):
        last = index + 1 == len(steps)
        yield JudgeView(
            instruction=trajectory["instruction"],
            history=tuple(history),
            observation=step["observation"],
            commands=step["commands"],
            reply=step["reply"],
            action=step["action"],
            valid=step["valid"],
            next_observation=trajectory["final_observation"] if last else steps[index + 1]["observation"],
            images=tuple(screens[max(0, index + 1 - images) : index + 1]),
            next_images=tuple(chain.from_iterable(screens[index + 1 : index + 2])),
        )
        history.append((step["observation"], step["action"]))


def judged_with_pictures(prompt: JudgePrompt, view: JudgeView) -> list[PictureMessage]:
    """The messages about a step: pictures from before it, then the pictures that followed."""
    if isinstance(prompt, PicturesJudge):
        return prompt.with_pictures(view)
    return with_pictures_last(prompt.messages(view), [*chain.from_iterable(view.images), *view.next_images])
