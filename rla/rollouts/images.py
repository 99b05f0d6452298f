"""The images of an episode, each distinct one once: a screen that does not change is stored a single time."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from rla.store.records import ShownImage


def distinct_images(seen: Sequence[Sequence[bytes]]) -> list[ShownImage] | None:
    """`seen`: the PNG files of each observation, that of the reset first. None where there is no image at all."""
    found: dict[str, ShownImage] = {}
    for observation, images in enumerate(seen):
        for position, png in enumerate(images):
            digest = hashlib.sha256(png).hexdigest()
            image = found.setdefault(digest, ShownImage(digest=digest, png=png, shown=[]))
            image.shown.append({"observation": observation, "position": position})
    return list(found.values()) or None
