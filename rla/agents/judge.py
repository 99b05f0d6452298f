"""The judge's side of a step: prompt token ids from a trajectory row, and m judgements from completions.

The judge never sees the outcome. The policy's text stands in its prompt as quoted data: `ChatFormat` encodes contents
so that control tokens in them cannot act.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from rla.agents.policy import with_pictures_last
from rla.envs.prompts import JudgePrompt
from rla.envs.views import JudgeView
from rla.llm.base import Completion, FinishReason
from rla.llm.chat import ChatFormat, reply_text
from rla.pictures.prompts import PictureMessage, PicturesJudge
from rla.pictures.vision import PlacedImage
from rla.store.records import Judgement, StepScore, columns
from rla.thoughts import after_thinking


def views(
    trajectory: Mapping[str, Any], screens: Sequence[tuple[bytes, ...]] = (), *, images: int = 1
) -> Iterator[JudgeView]:
    """What the judge may see of each step of a trajectory row, in order.

    `screens`: the pictures of every observation; those of the last `images` before an action are shown.
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
    """What a judge is asked about a step: pictures from before it, then those of what followed."""
    if isinstance(prompt, PicturesJudge):
        return prompt.with_pictures(view)
    return with_pictures_last(
        prompt.messages(view), [*(png for shown in view.images for png in shown), *view.next_images]
    )


def unscored_judgement(completion: Completion, chat: ChatFormat) -> Judgement:
    """What was sampled, before anything is read in it."""
    return Judgement(
        score=None,
        text=reply_text(completion, chat),
        truncated=completion.finish_reason is FinishReason.LENGTH,
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
        allowed=completion.allowed,
    )


def voted(judgement: Judgement, prompt: JudgePrompt) -> Judgement:
    """The same with the vote that its text gives; a reply that does not parse has no score and is no vote."""
    return replace(judgement, score=None if judgement.truncated else prompt.parse(after_thinking(judgement.text)))


def step_score(
    trajectory: Mapping[str, Any],
    step: int,
    prompt_ids: list[int],
    judgements: list[Judgement],
    *,
    images: Sequence[PlacedImage] | None = None,
) -> StepScore:
    """The row of one judged step: `mean_score` is the mean over valid judgements, null where there is none.

    `images`: those in the prompt; None for a judge that sees none.
    """
    votes = [judgement.score for judgement in judgements if judgement.score is not None]
    return StepScore(
        trajectory_id=trajectory["trajectory_id"],
        task_id=trajectory["task_id"],
        step=step,
        prompt_ids=prompt_ids,
        mean_score=sum(votes) / len(votes) if votes else None,
        judgements=judgements,
        image_spans=None if images is None else [columns(one.span()) for one in images],
    )
