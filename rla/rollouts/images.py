"""The images of an episode, each distinct one once: a screen that does not change is stored a single time. Whether the
models of a stage see them, and which a judge is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.envs.pictures import shows_images
from rla.models.checkpoint import model_folder
from rla.models.vision import VisionFormat, vision_for
from rla.store.images import image_row, images_of_part, named_images, png_digest
from rla.store.records import ShownImage, Trajectory

PNGS = "pngs"  # key that a row of trajectories gets: digest -> file


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


def seeing(env: object, config: Config, checkpoint: Path) -> VisionFormat | None:
    """What the model of a checkpoint makes of pictures; None where the environment shows none to models.

    Raises UserError for a model that reads texts alone in an environment that shows pictures.
    """
    shows = shows_images(env, config)
    return vision_for(model_folder(checkpoint), environment=config.env.name, shows=shows)


def with_pngs(part: Path, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a part of trajectories, with the pictures that they name; the others as they are."""
    named = {digest for row in rows for digest in named_images(row)}
    found = images_of_part(part, named)
    return [row | {PNGS: {digest: found[digest] for digest in named_images(row)}} if named else row for row in rows]


def screens_of(trajectory: Mapping[str, Any]) -> list[tuple[bytes, ...]]:
    """The pictures of each observation of a row, that after the last step included; empty where it has none."""
    pngs = trajectory.get(PNGS)
    if pngs is None:
        return []
    return [tuple(pngs[digest] for digest in shown) for shown in trajectory["screens"]]
