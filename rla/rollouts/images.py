"""The images of an episode, each distinct one once: a screen that does not change is stored a single time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rla.store.images import image_row, png_digest
from rla.store.records import ShownImage, Trajectory


def distinct_images(seen: Sequence[Sequence[bytes]]) -> list[ShownImage] | None:
    """`seen`: the PNG files of each observation, that of the reset first. None where there is no image at all."""
    found: dict[str, ShownImage] = {}
    for observation, images in enumerate(seen):
        for position, png in enumerate(images):
            digest = png_digest(png)
            image = found.setdefault(digest, ShownImage(digest=digest, png=png, shown=[]))
            image.shown.append({"observation": observation, "position": position})
    return list(found.values()) or None


def image_rows(trajectories: Sequence[Trajectory]) -> list[dict[str, Any]]:
    """The rows of an `images` part: the pictures of all episodes of a group, each distinct one once."""
    found = {image.digest: image.png for one in trajectories for image in one.images or ()}
    return [image_row(png, digest=digest) for digest, png in sorted(found.items())]


def without_pngs(trajectory: Trajectory) -> Trajectory:
    """The same with digests in place of files."""
    observations = len(trajectory.steps) + 1
    places = [
        (place["observation"], place["position"], image.digest)
        for image in trajectory.images or ()
        for place in image.shown
    ]
    count = max([observations, *(observation + 1 for observation, _, _ in places)])
    screens: list[list[str]] = [[] for _ in range(count)]
    for observation, _, digest in sorted(places):
        screens[observation].append(digest)
    return replace(trajectory, images=None, screens=screens)
