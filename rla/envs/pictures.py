"""Environments that show pictures, and prompts that hold some: PNG files between texts.

An environment whose observations carry `images` that a model shall see says so with `Pictured`. Its prompts may stay
texts: then the pictures stand before the text of the last turn. A prompt with a layout of its own is a `PicturesPolicy`
or a `PicturesJudge`. Only a `Picture` becomes a picture: whatever a text holds stays text, also where it reads like the
control tokens that stand for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rla.config import Config
from rla.envs.views import JudgeView
from rla.text import past_reply


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG file in a prompt."""

    png: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureMessage:
    """A turn of a chat: texts and pictures in order."""

    role: str
    parts: tuple[str | Picture, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastStep:
    """An earlier step of an episode. `reply` is whole; a prompt shows `said`. `images` are empty where the prompt is to
    show the step as text alone.
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
class Pictured(Protocol):
    """An environment whose observations may carry pictures for policy and judge: both are vision-language models."""

    def shows_images(self, config: Config) -> bool:
        """Whether they do with these parameters."""
        ...


@runtime_checkable
class PicturesPolicy(Protocol):
    """What a `PolicyPrompt` has beside where its pictures have places of their own (`policy.history: window`)."""

    def with_pictures(
        self,
        history: Sequence[PastStep],
        observation: str,
        images: Sequence[bytes],
        commands: Sequence[str],
        instruction: str,
    ) -> list[PictureMessage]:
        """`history`: all earlier steps; the last `policy.images` - 1 of them have their pictures."""
        ...


@runtime_checkable
class PicturesJudge(Protocol):
    """What a `JudgePrompt` has beside where its pictures have places of their own."""

    def with_pictures(self, view: JudgeView) -> list[PictureMessage]: ...


@runtime_checkable
class DrawsActions(Protocol):
    """What a `PolicyPrompt` has beside, for whoever shows episodes, if actions point at places of a picture."""

    def drawn(self, action: str, png: bytes) -> bytes:
        """The last picture before an action, with the places it points at marked; unchanged for other actions. `action`
        is text of a model. Raises UserError for a damaged picture.
        """
        ...


def shows_images(env: object, config: Config) -> bool:
    """Whether policy and judge see pictures in an environment."""
    return isinstance(env, Pictured) and env.shows_images(config)
