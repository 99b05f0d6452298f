"""Chat turns that hold pictures, as token ids: texts and pictures in order, each picture with all of its tokens.

A picture comes from a `Picture`-like part alone. Texts are encoded without control tokens, as `ChatFormat` does, and
what acts in chat templates or stands for a picture is broken in them before: a server that is sent the same turns as
messages makes the same tokens of them. What a tokenizer makes of a text in spite of that is refused.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rla.errors import UserError
from rla.llm.base import PlacedImage
from rla.llm.chat import ChatFormat, Trim, plain_beside_pictures
from rla.models.vision import VisionFormat
from rla.store.images import png_digest


class HasPng(Protocol):
    """A picture in a prompt."""

    @property
    def png(self) -> bytes: ...


class HasParts(Protocol):
    """A turn of a chat."""

    @property
    def role(self) -> str: ...

    @property
    def parts(self) -> Sequence[str | HasPng]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTokens:
    """Ids, and the pictures that stand among them."""

    ids: list[int]
    images: tuple[PlacedImage, ...] = ()
    turns: tuple[HasParts, ...] = ()  # of a whole conversation

    def behind(self, count: int) -> tuple[PlacedImage, ...]:
        """The pictures as they stand where these ids follow `count` others."""
        return tuple(
            PlacedImage(png=one.png, digest=one.digest, start=one.start + count, length=one.length)
            for one in self.images
        )


def trimmed(parts: Sequence[str | HasPng], trim: Trim) -> list[str | HasPng]:
    """The parts of a turn as a template trims it: pictures are not white space."""
    shown = list(parts)
    if shown and isinstance(shown[0], str):
        shown[0] = Trim(left=trim.left, right=False).applied(shown[0])
    if shown and isinstance(shown[-1], str):
        shown[-1] = Trim(left=False, right=trim.right).applied(shown[-1])
    return shown


class PictureChat:
    """`ChatFormat` for turns with pictures. `vision`: of the model that reads them."""

    def __init__(self, chat: ChatFormat, vision: VisionFormat) -> None:
        self._chat, self._vision = chat, vision

    def first(self, messages: Sequence[HasParts]) -> PromptTokens:
        """A conversation, the header of the assistant's reply included. Raises ValueError for a broken picture."""
        roles = [message.role for message in messages]
        opening, *frames = self._chat.frames(roles)
        ids, images = list(opening), list[PlacedImage]()
        for message, frame, trim in zip(messages, frames, self._chat.trims(roles), strict=True):
            self._add(ids, images, message.role, trimmed(message.parts, trim))
            ids += frame
        return PromptTokens(ids=ids, images=tuple(images), turns=tuple(messages))

    def next_turn(self, parts: Sequence[str | HasPng], *, ended: bool) -> PromptTokens:
        """What follows a reply, as `ChatFormat.next_turn` has it."""
        between, closing = self._chat.between(ended=ended)
        ids, images = list(between), list[PlacedImage]()
        self._add(ids, images, "user", trimmed(parts, self._chat.trims(("user", "assistant", "user"))[-1]))
        return PromptTokens(ids=[*ids, *closing], images=tuple(images))

    def _add(self, ids: list[int], images: list[PlacedImage], role: str, parts: Sequence[str | HasPng]) -> None:
        for part in parts:
            if isinstance(part, str):
                ids += self._text(role, part)
                continue
            own = self._vision.tokens(part.png)
            place = {"start": len(ids) + 1, "length": len(own) - 2}  # between the two tokens that frame them
            images.append(PlacedImage(png=part.png, digest=png_digest(part.png), **place))
            ids += own

    def _text(self, role: str, text: str) -> Sequence[int]:
        ids = self._chat.content_ids(role, plain_beside_pictures(text))
        if not set(self._vision.banned).isdisjoint(ids):
            raise UserError(
                f"{self._chat.tokenizer.name_or_path}: its tokenizer makes tokens of pictures out of texts; mark "
                "<|image_pad|> and the like as special tokens in it"
            )
        return ids


def parts_message(message: HasParts) -> dict[str, Any]:
    """{"role", "content"} for a chat server, the content a list of OpenAI's parts, pictures as data URLs; a turn of
    texts alone has a plain text. Servers look for the placeholders of their models in texts, so the common ones are
    broken in every text, `< image>`.
    """
    if all(isinstance(part, str) for part in message.parts):
        return {"role": message.role, "content": "".join(plain_beside_pictures(str(part)) for part in message.parts)}
    return {
        "role": message.role,
        "content": [
            {"type": "text", "text": plain_beside_pictures(part)}
            if isinstance(part, str)
            else {"type": "image_url", "image_url": {"url": data_url(part.png)}}
            for part in message.parts
        ],
    }


def data_url(png: bytes) -> str:
    """A PNG file as a URL that holds it."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
