"""Pictures in a prompt: where their tokens stand, and the keys by which a cache tells them apart."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rla.llm.slots import Ints
from rla.store.records import ImageSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedImage:
    """A PNG file, its SHA-256, and the span of its `<|image_pad|>` tokens among the ids of a prompt."""

    png: bytes
    digest: str
    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length

    def span(self) -> ImageSpan:
        return ImageSpan(digest=self.digest, start=self.start, length=self.length)


def check_placed(ids: Sequence[int], images: Sequence[PlacedImage], *, image: int) -> None:
    """Raises ValueError unless exactly the tokens `image` of a prompt belong to pictures, which are in order."""
    places = [place for place, token in enumerate(ids) if token == image]
    owned = [place for one in images for place in range(one.start, one.end)]
    if places != owned:
        raise ValueError(f"{len(places)} tokens of pictures, and {len(images)} pictures with {len(owned)} tokens")


def cache_keys(ids: Sequence[int], images: Sequence[PlacedImage]) -> Ints:
    """`ids`, and below zero for the tokens of pictures numbers of their content: two prompts share a prefix only where
    they show the same pictures.
    """
    keys = np.asarray(ids, dtype=np.int64)
    if images:
        keys = keys.copy()
    for one in images:
        content = hashlib.shake_256(one.digest.encode()).digest(4 * one.length)
        keys[one.start : one.end] = -1 - (np.frombuffer(content, dtype="<u4").astype(np.int64) >> 1)
    return keys
