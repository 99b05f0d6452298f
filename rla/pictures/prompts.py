"""Prompts that contain images: environments that show them, and chat turns of text and images.

An environment whose observations carry `images` that the models should see implements `ShowsImages`. Its prompts may
remain plain text; the images then come before the text of the last turn. A prompt with its own layout implements
`PicturesPolicy` or `PicturesJudge`.

Only a `Picture` becomes an image. In text, anything that acts in a chat template or stands for an image is broken, so
a server that is sent the turns as messages makes the same tokens of them as `rla.pictures.vision.PictureChat`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from rla.config import Config
from rla.text import neutral, past_reply

PLACEHOLDER = re.compile(
    r"<(?=/?(?:image|img|video|vision|start_of_image|end_of_image|image_soft_token|audio)[\w|]*>)|\[(?=/?IMG)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Picture:
    png: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureMessage:
    """A chat turn: texts and images in order."""

    role: str
    parts: tuple[str | Picture, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastStep:
    """An earlier step of an episode. Prompts show `said`, not the whole `reply`. `images` is empty if the prompt should
    show the step as text only.
    """

    observation: str
    reply: str
    action: str
    images: tuple[bytes, ...] = ()

    @property
    def said(self) -> str:
        """The reply without its thoughts."""
        return past_reply(self.reply)


@runtime_checkable
class ShowsImages(Protocol):
    """An environment whose observations may carry images for policy and judge, which are vision-language models."""

    def shows_images(self, config: Config) -> bool:
        """Whether observations carry images with these parameters."""


@runtime_checkable
class PicturesPolicy(Protocol):
    """A `PolicyPrompt` that places its images itself (`policy.history: window`)."""

    def with_pictures(
        self,
        history: Sequence[PastStep],
        observation: str,
        images: Sequence[bytes],
        commands: Sequence[str],
        instruction: str,
    ) -> list[PictureMessage]:
        """`history` has all earlier steps; the last `policy.images` - 1 of them carry their images."""


@runtime_checkable
class PicturesJudge(Protocol):
    """A `JudgePrompt` that places its images itself."""

    def with_pictures(self, view: Any) -> list[PictureMessage]:
        """`view` is an `rla.envs.protocols.JudgeView`."""


def shows_images(env: object, config: Config) -> bool:
    """Whether policy and judge see images in an environment."""
    return isinstance(env, ShowsImages) and env.shows_images(config)


def without_placeholders(text: str) -> str:
    """`neutral(text)` with image placeholders broken as well: `< image>`."""
    return PLACEHOLDER.sub(lambda found: f"{found[0]} ", neutral(text))
